"""Names that mean many files."""

import pytest

from shared_models.archives import Pattern, check_file_name, is_archive, node_name, overlaps
from shared_models.documents import IO
from shared_models.limits import MAX_PATTERNS


@pytest.mark.parametrize(
    ("name", "path", "takes"),
    [
        ("*.bt2", "lambda.1.bt2", True),
        ("*.bt2", "sub/lambda.1.bt2", False),
        ("*.bt2", ".bt2", False),
        ("*.bt2", "lambda.bt2.txt", False),
        (".*", ".hidden", True),
        ("sub/*.txt", "sub/a.txt", True),
        ("sub/?.txt", "sub/ab.txt", False),
        ("[ab].txt", "a.txt", True),
        ("[!ab].txt", "a.txt", False),
        ("**/x", "x", True),
        ("**/x", "a/b/x", True),
        ("a/**/x", "a/x", True),
        ("a/**", "a/b/c", True),
        ("sample_*", "sample_1/deep/file", True),
        ("bt2/", "bt2/a/b", True),
        ("bt2/", "bt2", True),
        ("bt2/", "bt22/a", False),
        ("*\n", "a\n", True),
        ("./out/", "out/a", True),
        ("a/./out/", "a/out/a", True),
        ("./*.txt", "a.txt", True),
        ("**/./x", "a/x", True),
    ],
)
def test_a_pattern_takes_what_matches_it_and_what_lies_in_that(name: str, path: str, takes: bool) -> None:
    assert Pattern(name).takes(path.split("/")) is takes


def test_a_pattern_is_read_below_its_directory_and_the_directory_is_no_pattern() -> None:
    pattern = Pattern("./*.txt", "./re*s")
    assert pattern.takes(["re*s", "a.txt"])
    assert not pattern.takes(["results", "a.txt"])


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("bt2/", "bt2.tar"),
        ("sub/bt2/", "bt2.tar"),
        ("lambda.*.bt2", "lambda._.bt2.tar"),
        ("a/[bc] ?", "_bc___.tar"),
        ("é" * 127 + "/", "é" * 125 + ".tar"),
    ],
)
def test_the_node_of_an_archive_has_a_plain_name(name: str, called: str) -> None:
    assert node_name(name) == called


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("out/", None),
        ("a/b/", None),
        ("/", "is empty"),
        ("//", "is absolute"),
        ("../", "'..' part"),
        ("/out/", "is absolute"),
        ("a//", "names a directory"),
        ("./", "names a directory"),
        ("x*/", "leave out the '/'"),
        ("../*", "'..' part"),
        ("*/../x", "'..' part"),
    ],
)
def test_F_08_names_of_folders_and_patterns_stay_inside(name: str, says: str | None) -> None:
    reason = check_file_name(name)
    assert (reason is None) if says is None else (says in (reason or ""))


def test_a_bracket_alone_is_no_pattern() -> None:
    assert not is_archive("reads[1.fastq")
    assert is_archive("reads[1].fastq")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([{"filename": "a"}, {"filename": "b"}], []),
        ([{"filename": "a/b"}, {"filename": "b", "directory": "a"}], ["'a/b' is the same file as 'a/b'"]),
        ([{"filename": "out"}, {"filename": "out/"}], ["'out/' is the same file as 'out'"]),
        ([{"filename": "out/"}, {"filename": "out/x"}], ["'out/x' lies in the output 'out/'"]),
        ([{"filename": "out/x/"}, {"filename": "out/"}], ["'out/x/' lies in the output 'out/'"]),
        ([{"filename": "out/"}, {"filename": "*.txt", "directory": "out"}], ["lies in the output 'out/'"]),
        ([{"filename": "a.txt"}, {"filename": "*.txt"}], ["'*.txt' matches the output 'a.txt', too"]),
        ([{"filename": "out/"}, {"filename": "o*"}], ["'o*' matches the output 'out/', too"]),
        ([{"filename": "d/a.txt"}, {"filename": "*.txt"}], []),
        ([{"filename": "a.txt"}, {"filename": "*.txt", "directory": "d"}], []),
        ([{"filename": "a", "type": "copy"}, {"filename": "*"}], []),
        ([{"filename": f"*.{i}"} for i in range(MAX_PATTERNS)], []),
        ([{"filename": f"*.{i}"} for i in range(MAX_PATTERNS + 1)], [f"at most {MAX_PATTERNS}"]),
    ],
)
def test_outputs_that_are_the_same_file_are_found(files: list[dict[str, str]], says: list[str]) -> None:
    found = [problem for _, problem in overlaps([IO(**file) for file in files])]  # type: ignore[arg-type]
    assert len(found) == len(says)
    assert all(part in problem for part, problem in zip(says, found, strict=True))
