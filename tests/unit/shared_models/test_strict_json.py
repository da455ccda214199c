"""Whatever bytes come, the answer is a value or a clear refusal, quickly."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_models.errors import AweError, InvalidDocument, TooLarge
from shared_models.limits import MAX_DEPTH, MAX_DOCUMENT_BYTES, MAX_VALUES
from shared_models.strict_json import read_json
from tests.support.cost import cpu_below

REFUSED = {
    b"": "empty",
    b" \n": "empty",
    b"not json": "not valid JSON",
    b'{"info": ': "not valid JSON",
    b"[1,]": "not valid JSON",
    b"{'a': 1}": "not valid JSON",
    b'{"a": 1} x': "not valid JSON",
    b'{"a": NaN}': "not valid JSON",
    b'{"a": Infinity}': "not valid JSON",
    b'{"a": 1e999}': "not valid JSON",
    b'{"a": "\xff"}': "UTF-8",
    b'{"a": "\\ud800"}': "not valid JSON",
    b"\x1f\x8b\x08\x00": "not valid JSON",
    b'{"a": 1180591620717411303424}': "a: the number 1180591620717411303424 is out of range",
    b'{"a": [0, -9223372036854775809]}': r"a\[1\]: the number",
    b'{"a": ' + b"9" * 5000 + b"}": "number",
    b'{"a": 1, "b": [{"c": 1, "c": 2}]}': r"b\[0\]: the key 'c' is given more than once",
    b'{"a": {"x\\u0000y": 1}}': "a: the key 'x\\\\x00y' has a NUL",
    b'{"totalwork": #totalwork}': "template placeholder '#totalwork'.*--set totalwork=VALUE",
    b"[" * 10_000: "not valid JSON",
    b"[" * 10_000 + b"]" * 10_000: "not valid JSON",
    b'{"a":' * 10_000 + b"1" + b"}" * 10_000: "not valid JSON",
    b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2): f"nested more than {MAX_DEPTH} deep",
}


@pytest.mark.parametrize("raw", REFUSED)
def test_refused_with_a_reason(raw: bytes) -> None:
    with pytest.raises(InvalidDocument, match=REFUSED[raw]):
        read_json(raw)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"\xef\xbb\xbf{}", {}),
        (b'{"a": 9223372036854775807, "b": -9223372036854775808}', {"a": 2**63 - 1, "b": -(2**63)}),
        (b'{"a": 1.5e3, "b": [true, null, "\\u00e4"]}', {"a": 1500.0, "b": [True, None, "ä"]}),
        (b'{"a": "\\u0000"}', {"a": "\0"}),
    ],
)
def test_clean_json_is_read(raw: bytes, value: object) -> None:
    assert read_json(raw) == value


def test_the_deepest_document_is_read() -> None:
    assert read_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)


def test_every_repeated_key_is_named_up_to_twenty() -> None:
    pairs = ", ".join(f'"k{i}": 1, "k{i}": 2' for i in range(50))
    with pytest.raises(InvalidDocument) as refusal:
        read_json(f'{{"a": {{{pairs}}}}}'.encode())
    assert refusal.value.problems[0] == "a: the key 'k0' is given more than once"
    assert len(refusal.value.problems) == 20


@pytest.mark.parametrize(
    "raw",
    [
        b" " * (MAX_DOCUMENT_BYTES + 1),
        b"[" + b"1," * MAX_VALUES + b"1]",
        b'{"a":1,' * MAX_VALUES,
    ],
    ids=["bytes", "commas", "braces"],
)
def test_too_large_is_refused_before_it_costs_anything(raw: bytes) -> None:
    with cpu_below(1.0), pytest.raises(TooLarge, match=r"the limit is|more than"):
        read_json(raw)


def test_a_million_repeated_keys_are_refused_in_time() -> None:
    raw = b'{"a": {' + b'"k":1,' * 1_000_000 + b'"k":1}}'
    with cpu_below(5.0), pytest.raises(AweError, match="more than once"):
        read_json(raw)


def test_reading_agrees_with_the_standard_library() -> None:
    value = {"a": [1, -2, 0.1, "x", None, True, {"b": []}], "": {}}
    assert read_json(json.dumps(value).encode()) == value


_SPACE = st.sampled_from(["", " ", "\n\t"])
_TEXT = st.text(st.sampled_from('a:"\\\\ä'), max_size=3)
_SCALAR = st.one_of(_TEXT.map(json.dumps), st.integers(-(10**20), 10**20).map(str), st.just("1.5e3"))


def _objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(_TEXT.map(json.dumps), _SPACE, _SPACE, inner).map(lambda p: f"{p[0]}{p[1]}:{p[2]}{p[3]}")
    pairs = st.lists(pair, max_size=4).map(lambda found: "{" + ",".join(found) + "}")
    return pairs | st.lists(inner, max_size=3).map(lambda found: "[" + ",".join(found) + "]")


@given(st.recursive(_SCALAR, _objects, max_leaves=12))
def test_nothing_is_hidden_by_reading_quickly(text: str) -> None:
    twice: list[str] = []

    def read_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        twice.extend(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        return dict(pairs)

    def read_number(text: str) -> int:
        value = int(text)
        if not -(2**63) <= value < 2**63:
            twice.append(text)
        return value

    value = json.loads(text, object_pairs_hook=read_object, parse_int=read_number)
    if twice:
        with pytest.raises(InvalidDocument):
            read_json(text.encode())
    else:
        assert read_json(text.encode()) == value
