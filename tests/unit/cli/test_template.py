"""Placeholders of AWE templates."""

import json

import pytest

from awe_client.cli.template import fill
from shared_models.arguments import split_words
from shared_models.errors import InvalidDocument

TEMPLATE = (
    '{"info": {"name": "#jobname"}, "tasks": [{"totalwork": #totalwork, '
    '"inputs": {"#inputfile": {"node": "#shocknode"}}, "outputs": {"#jobname.prep.fna": {}}}]}'
)


def test_every_placeholder_is_filled_inside_and_outside_of_strings() -> None:
    text = fill(TEMPLATE, {"jobname": "j1", "totalwork": "4", "inputfile": "a b.fna", "shocknode": "n"})
    assert json.loads(text) == {
        "info": {"name": "j1"},
        "tasks": [
            {"totalwork": 4, "inputs": {"a b.fna": {"node": "n"}}, "outputs": {"j1.prep.fna": {}}},
        ],
    }


def test_a_value_is_escaped_inside_a_string() -> None:
    assert json.loads(fill('{"a": "x#v"}', {"v": 'say "hi"\\n'})) == {"a": 'xsay "hi"\\n'}


@pytest.mark.parametrize(
    "value", ["plain", "two  words", "it's", 'say "hi"', "back\\slash", " '\"\\ ", "tab\there"]
)
@pytest.mark.parametrize("args", ["@#v x", "-c 'at #v here' x", '-c "at #v here" x', r"a\ b=#v.out x", "#v"])
def test_in_args_a_value_is_a_part_of_one_word(args: str, value: str) -> None:
    template = json.dumps({"cmd": {"name": "#v", "args": args}, "args_array": ["#v"]})
    filled = json.loads(fill(template, {"v": value}))
    assert split_words(filled["cmd"]["args"]) == [word.replace("#v", value) for word in split_words(args)]
    assert (filled["cmd"]["name"], filled["args_array"]) == (value, [value])


def test_in_args_nothing_is_quoted_that_need_not_be() -> None:
    assert fill('{"args" : "-d @#a #b"}', {"a": "x.fa", "b": ""}) == '{"args" : "-d @x.fa "}'


def test_only_whole_placeholders_are_filled() -> None:
    filled = fill('["#db and #dbname", "#db.x#db", "#db_2"]', {"db": "X", "dbname": "Y", "db_2": "Z"})
    assert filled == '["X and Y", "X.xX", "Z"]'


def problems(text: str, **values: str) -> list[str]:
    with pytest.raises(InvalidDocument) as refused:
        fill(text, values)
    return refused.value.problems


def test_every_placeholder_without_a_value_is_named() -> None:
    template = """{"info": {"name": "#db and #dbname"}, "tasks": [{"totalwork": #parts, "cmd":
        {"args_array": ["-x=#ref", "@#reads"], "args": "#db"}, "outputs": {"#out.txt": {}}}]}"""
    names = ["dbname", "ref", "reads", "out", "parts"]
    said = problems(template, db="X")
    assert [line.split()[2] for line in said] == [f"#{name}" for name in names]
    assert "add --set dbname=VALUE" in said[0]
    assert len(problems(template)) == 6  # nothing was given, but its name says what it is
    assert problems('{"tasks": [{"totalwork": #n}]}')[0].startswith("the placeholder #n has no value")


def test_what_is_no_placeholder_stays() -> None:
    text = (
        """{"a": "sample#b.fq", "cmd_script": ["#set x", "echo #v"], "description": "see #main", "c": "#1"}"""
    )
    assert fill(text, {"v": "1"}) == text.replace("#v", "1")
    assert fill('["#ff0000", "#v"]', {"v": "1", "ff0000": "#ff0000"}) == '["#ff0000", "1"]'
    assert problems('{"cmd_script": ["cat #inputfile #v"]}', v="1")[0].split()[2] == "#inputfile"
    plain = '{"info": {"name": "n"}, "tasks": [{"cmd": {"args": "--color #fff"}}]}'
    assert fill(plain, {}) == plain


def test_a_key_that_the_template_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(InvalidDocument, match="no placeholder #user; it has: #jobname"):
        fill('["#jobname"]', {"user": "anna"})
    [said] = problems('["#jobname", "#n"]', jobnam="x")
    assert said.endswith("it has: #jobname, #n; did you mean 'jobname'?")


def test_outside_of_strings_only_json_may_stand() -> None:
    with pytest.raises(InvalidDocument, match="must be JSON"):
        fill('{"a": #n}', {"n": "four"})
