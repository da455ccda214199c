"""Arguments become words as a shell would make them; inputs and variables are put in, nothing is dropped."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_models.arguments import as_typed, split_arguments, split_words
from shared_models.errors import InvalidDocument

INPUTS = {
    "reads.fna": "/w/reads.fna",
    "reads.fna.gz": "/w/reads.fna.gz",
    "a b.txt": "/w/a b.txt",
    "sub/x.txt": "/w/sub/x.txt",
    "r+": "/w/r+",
}
ENVIRON = {"LEVEL": "2", "TEXT": "two words", "AT": "@reads.fna", "EMPTY": ""}


def split(args: str) -> list[str]:
    return split_arguments(args, [], INPUTS, ENVIRON)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("", []),
        ("  \t\n ", []),
        ("-l  x", ["-l", "x"]),
        ("-input=@reads.fna -o=x", ["-input=/w/reads.fna", "-o=x"]),
        ("@reads.fna.gz", ["/w/reads.fna.gz"]),
        ("@reads.fna,@reads.fna.gz", ["/w/reads.fna,/w/reads.fna.gz"]),
        ("@sub/x.txt:@r+", ["/w/sub/x.txt:/w/r+"]),
        ("@reads.fna/x", ["/w/reads.fna/x"]),
        ("'@a b.txt' \"@a b.txt\" @a\\ b.txt", ["/w/a b.txt"] * 3),
        ("@reads.fnax @reads.fna. @other @", ["@reads.fnax", "@reads.fna.", "@other", "@"]),
        ("me@host.org a@b@c", ["me@host.org", "a@b@c"]),
        ("-n ${LEVEL} x${LEVEL}y${EMPTY}", ["-n", "2", "x2y"]),
        ("${TEXT} '${TEXT}'", ["two words", "two words"]),
        ("${AT}", ["@reads.fna"]),
        ("$${LEVEL} $LEVEL ${1} ${ $", ["${LEVEL}", "$LEVEL", "${1}", "${", "$"]),
        ("'single \"in\"' \"double 'in'\" a'b'c", ['single "in"', "double 'in'", "abc"]),
        (r'"a \"b\" \n \\" a\ b \@', ['a "b" \\n \\', "a b", "@"]),
        ("'' \"\" a''", ["", "", "a"]),
    ],
)
def test_words(args: str, words: list[str]) -> None:
    assert split(args) == words


@pytest.mark.parametrize(
    "word", ["${LEVEL}", "$${LEVEL}", "a${LEVEL}${NOT_SET}b", "$LEVEL ${1} ${LEVEL:-x} me@host", "", "$${"]
)
def test_a_word_of_a_shell_arrives_as_it_was_typed(word: str) -> None:
    assert split_arguments("", [as_typed(word)], INPUTS, ENVIRON) == [word]


def test_args_array_is_used_word_by_word_when_there_are_no_args() -> None:
    given = ["-in=@reads.fna", "two words", "it's", "", "${LEVEL}", "a\\b"]
    words = ["-in=/w/reads.fna", "two words", "it's", "", "2", "a\\b"]
    assert split_arguments("", given, INPUTS, ENVIRON) == words
    assert split_arguments("  ", given, INPUTS, ENVIRON) == words
    assert split_arguments("x", given, INPUTS, ENVIRON) == ["x"]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ("ab 'c", "args: the quote ' is not closed at position 3"),
        ('"a \\"', 'args: the quote " is not closed at position 0'),
        ("a\\", "args: nothing follows the backslash at position 1"),
        ("a ${HOME}", "args: word 2: variable 'HOME' is not set in cmd.environ"),
    ],
)
def test_refused(args: str, problem: str) -> None:
    with pytest.raises(InvalidDocument) as refusal:
        split(args)
    assert refusal.value.problems == [problem]


def test_an_unset_variable_of_an_array_is_named_by_its_position() -> None:
    with pytest.raises(InvalidDocument, match=r"args_array\[1\]: variable 'NO' is not set"):
        split_arguments("", ["a", "${NO}"], INPUTS, ENVIRON)


def test_the_variables_of_this_process_are_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVEL_OF_THE_DAEMON", "1")
    with pytest.raises(InvalidDocument, match="LEVEL_OF_THE_DAEMON"):
        split("${LEVEL_OF_THE_DAEMON}")


@settings(max_examples=500)
@given(st.text(alphabet="ab'\"\\ \t\n@$", max_size=20))
def test_splitting_agrees_with_a_posix_shell(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:
        with pytest.raises(InvalidDocument, match=r"^args: .* at position \d+$"):
            split_words(text)
        return
    assert split_words(text) == expected


@given(st.lists(st.text(max_size=10), max_size=5))
def test_quoted_words_come_back(words: list[str]) -> None:
    assert split_arguments(shlex.join(words), [], {}, {}) == [w for w in words] or any(
        "${" in w for w in words
    )
