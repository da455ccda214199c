"""A document comes out the same however it is spelt; whatever is done to it, it is read or refused."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_models.arguments import split_arguments
from shared_models.documents import JobDocument
from shared_models.errors import AweError, InvalidDocument
from shared_models.messages import check_exchange
from shared_models.parse import parse_job_document
from shared_models.paths import check_relative_path, normal_relative_path
from shared_models.problems import MAX_PROBLEMS
from shared_models.profile import parse_profile
from tests.support.cost import cpu_below
from tests.unit.shared_models.samples import NODE, OWN, full
from tests.unit.shared_models.test_messages import EXCHANGE

MUTATIONS = 5_000
#: The whole fuzz runs in a few seconds; a single document must never come near this.
SLOWEST_S = 2.0

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20)
file_names = st.text(
    st.characters(codec="ascii", categories=["L", "N"], include_characters="._- "), min_size=1
).filter(lambda name: check_relative_path(name) is None and normal_relative_path(name) == name)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
attributes = st.dictionaries(texts, values, max_size=3)


def optional(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


inputs = st.dictionaries(
    file_names,
    st.sampled_from(
        [
            {"node": NODE},
            {"host": OWN, "node": NODE},
            {"origin": "x"},
            {"url": "http://h/x"},
            {"url": "s3://bucket/key"},
        ]
    ),
    max_size=3,
)
outputs = st.dictionaries(
    file_names,
    optional(
        nonzero=st.booleans(),
        optional=st.booleans(),
        header_lines=st.integers(0, 5),
        nodeattr=attributes,
        shockindex=st.sampled_from(["", "line", "record"]),
    ),
    max_size=3,
)
tasks = st.builds(
    lambda required, more: {**required, **more},
    st.fixed_dictionaries(
        {
            "taskid": st.from_regex(r"[A-Za-z0-9_.]{1,20}", fullmatch=True),
            "cmd": st.fixed_dictionaries(
                {"name": st.just("x")},
                optional={
                    "args_array": st.lists(texts.filter(lambda t: "@" not in t), max_size=3),
                    "environ": st.fixed_dictionaries(
                        {
                            "public": st.dictionaries(
                                st.from_regex(r"[A-Z_]{1,9}", fullmatch=True), texts, max_size=2
                            )
                        }
                    ),
                },
            ),
            "inputs": inputs,
            "outputs": outputs,
        }
    ),
    optional(
        dependsOn=st.lists(st.from_regex(r"[a-z]{1,5}", fullmatch=True), unique=True, max_size=3),
        totalwork=st.integers(1, 10_000_000),
        maxworksize=st.integers(0, 1_000),
        userattr=attributes,
        skip=st.booleans(),
        time_limit_s=st.floats(0, 86_400),
        resources=optional(cores=st.integers(1, 64), memory_bytes=st.integers(0, 2**50)),
    ),
)
documents = st.fixed_dictionaries(
    {"tasks": st.lists(tasks, min_size=1, max_size=3)},
    optional={
        "info": optional(
            name=texts.filter(lambda t: "#" not in t),
            priority=st.integers(1, 1_000_000),
            userattr=attributes,
            noretry=st.booleans(),
        )
    },
)


def parse(document: Any) -> JobDocument:
    return parse_job_document(json.dumps(document).encode(), own_hosts=[OWN])


def list_form(document: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    for task in changed["tasks"]:
        for key in ("inputs", "outputs"):
            task[key] = [{"filename": name, **file} for name, file in task[key].items()]
    return changed


def shouted(value: Any, depth: int = 0) -> Any:
    """Write the keys that we define in capitals; those of the user are further down."""
    if isinstance(value, list):
        return [shouted(item, depth) for item in value]
    if not isinstance(value, dict):
        return value
    kept = ("userattr", "environ", "inputs", "outputs", "resources")
    return {key.upper(): v if key in kept else shouted(v, depth + 1) for key, v in value.items()}


@given(documents)
def test_map_form_equals_list_form(document: dict[str, Any]) -> None:
    assert parse(list_form(document)) == parse(document)


@given(documents)
def test_a_parsed_document_parses_to_itself(document: dict[str, Any]) -> None:
    once = parse(document)
    assert parse(orjson.loads(orjson.dumps(once.model_dump()))) == once


@given(documents)
def test_keys_in_capitals_mean_the_same(document: dict[str, Any]) -> None:
    assert parse(shouted(document)) == parse(document)


@given(documents)
def test_what_the_user_said_is_kept(document: dict[str, Any]) -> None:
    parsed = parse(document)
    assert [task.taskid for task in parsed.tasks] == [task["taskid"] for task in document["tasks"]]
    for task, said in zip(parsed.tasks, document["tasks"], strict=True):
        assert [io.filename for io in task.inputs] == list(said["inputs"])
        assert task.userattr == said.get("userattr", {})
        assert task.totalwork == said.get("totalwork", 1)


@given(st.text())
def test_a_name_that_passes_stays_below_the_directory(name: str) -> None:
    if check_relative_path(name) is None:
        parts = normal_relative_path(name).split("/")
        assert parts
        assert all(part not in ("", ".", "..") for part in parts)
        assert not any(ord(character) < 32 for character in name)
        assert check_relative_path(normal_relative_path(name)) is None


@given(st.text(max_size=40), st.dictionaries(file_names, st.just("/w/in"), max_size=3))
def test_arguments_are_split_or_refused(args: str, names: dict[str, str]) -> None:
    refusal = refusal_of(lambda text: split_arguments(text, [], names, {"A": "1"}), args)
    assert refusal is None or str(refusal).startswith("args")


ODD: list[Any] = [
    *[None, True, False, 0, -1, 1, 10**9, 2**63 - 1, -(2**63), 1.5, -0.0, 1e308],
    *[
        "",
        " ",
        "0",
        "#totalwork",
        "../../x",
        "/etc/passwd",
        "a\0b",
        "a\nb",
        "~",
        "C:\\x",
        "ü" * 300,
        "x" * 20_000,
    ],
    *["http://[::1", "file:///x", "'", "\\", "@", "@reads.fn", "${", "$${A}"],
    *[[], {}, [None], [[]], [{}], {"": {}}, {"a": None}, {"filename": 1}],
]
ODD_BYTES = [b"\xff", b"\0", *rb'NaN 1e999 " { } [ ] , : \u0000 \ud800 99999999999999999999'.split()]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a value."""
    found: list[tuple[Any, Any]] = []
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        found.append((value, key))
        found += places(child)
    return found


def mutate(document: Any, rng: random.Random) -> None:
    container, key = rng.choice(places(document))
    action = rng.randrange(5)
    if action == 0:
        container[key] = copy.deepcopy(rng.choice(ODD))
    elif action == 1:
        del container[key]
    elif action == 2 and isinstance(container, dict):
        container[rng.choice(["x", "Filename", key + "s", key[:-1], key.upper(), "", "_id"])] = container[key]
    elif action == 3:
        other, other_key = rng.choice(places(document))
        container[key] = copy.deepcopy(other[other_key])
    elif isinstance(container, list):
        container.append(copy.deepcopy(container[key]))


def garble(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw))
    return raw[:at] + rng.choice(ODD_BYTES) + raw[at + rng.randrange(3) :]


def refusal_of(check: Callable[[Any], object], given: Any) -> AweError | None:
    """The refusal, or None if it was accepted; any other exception is an error."""
    with cpu_below(SLOWEST_S):
        try:
            check(given)
        except AweError as exc:
            return exc
    return None


def is_accepted(check: Callable[[Any], object], given: Any) -> bool:
    """Whether it was accepted; if not, with a reason."""
    refusal = refusal_of(check, given)
    assert refusal is None or str(refusal)
    assert not isinstance(refusal, InvalidDocument) or 1 <= len(refusal.problems) <= MAX_PROBLEMS
    return refusal is None


def parse_and_store(raw: bytes) -> None:
    """What was accepted must be storable."""
    orjson.dumps(parse_job_document(raw).model_dump())


@pytest.mark.parametrize("seed", range(5))
def test_mutations_of_a_document_never_crash(seed: int) -> None:
    rng = random.Random(seed)
    accepted = 0
    for _ in range(MUTATIONS // 5):
        document = full()
        for _ in range(rng.choice([1, 1, 2, 5])):
            if places(document):
                mutate(document, rng)
        raw = json.dumps(document).encode()
        if rng.random() < 0.3:
            raw = garble(raw, rng)
        accepted += is_accepted(parse_and_store, raw)
    assert 0 < accepted < MUTATIONS // 5
    assert parse(full()).tasks


def test_mutations_of_an_exchange_never_crash() -> None:
    rng = random.Random(1)
    for _ in range(2_000):
        message = copy.deepcopy(EXCHANGE)
        mutate(message, rng)
        is_accepted(check_exchange, message)


def test_mutations_of_a_profile_never_crash() -> None:
    rng = random.Random(1)
    profile = {
        "id": "c",
        "group": "g",
        "apps": ["*"],
        "cores": 2,
        "current_work": {"data": ["a_b_1"]},
        "proxy": False,
    }
    for _ in range(2_000):
        said = copy.deepcopy(profile)
        mutate(said, rng)
        is_accepted(parse_profile, json.dumps(said).encode())


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(AweError):
        parse_job_document(raw)


@settings(max_examples=300)
@given(values)
def test_any_json_is_refused_or_a_job(value: Any) -> None:
    is_accepted(parse_and_store, json.dumps(value).encode())
    is_accepted(parse_and_store, json.dumps({"tasks": value}).encode())
    is_accepted(parse_and_store, json.dumps({"tasks": [value]}).encode())
    is_accepted(check_exchange, value)
