"""Clients of every kind can say who they are."""

import json
from typing import Any

import pytest

from shared_models.errors import AweError, InvalidDocument, TooLarge
from shared_models.limits import MAX_APPS, MAX_HOLDS, MAX_PROFILE_BYTES
from shared_models.profile import parse_profile

WORK = "0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10_0_1"


def test_the_least_profile() -> None:
    profile = parse_profile(b"{}")
    assert (profile.id, profile.group, profile.cores, profile.apps) == (None, "default", 1, [])
    assert (profile.native, profile.current_work, profile.host) == (False, [], "")


def test_a_native_profile() -> None:
    said = {
        "id": "0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10",
        "name": "node 7",
        "group": "big",
        "hostname": "n7",
        "cores": 8,
        "memory_bytes": 2**34,
        "disk_bytes": 2**40,
        "gpus": 2,
        "apps": ["*"],
        "containers": ["podman"],
        "file_roots": ["/data", "/shared/my files"],
        "spooled": [(WORK, 3)],
        "native": True,
        "incarnation": "abc",
        "version": "1.0",
    }
    profile = parse_profile(json.dumps(said).encode()).as_dict()
    assert {key: profile[key] for key in said} == said
    assert profile["host"] == "n7"


def test_roots_have_one_spelling() -> None:
    assert parse_profile({"file_roots": ["/a/", "//a", "/b//c/."]}).file_roots == ["/a", "/b/c"]


def test_what_is_no_attempt_is_left_out_of_the_spool() -> None:
    rows = [[WORK, 3], ["odd", 1], [WORK, True], [WORK], 5]
    assert parse_profile({"spooled": rows}).spooled == [(WORK, 3)]


@pytest.mark.parametrize(
    "work",
    [
        {WORK: True, "other": True, "0c61_0_2": False},
        {"data": [WORK]},
        [WORK, 5, "", "x"],
    ],
)
def test_current_work_in_every_form(work: Any) -> None:
    assert parse_profile({"current_work": work}).current_work == [WORK]


@pytest.mark.parametrize("work", [None, {}, {"data": None}, {"data": []}, []])
def test_no_current_work_in_every_form(work: Any) -> None:
    assert parse_profile({"current_work": work}).current_work == []


@pytest.mark.parametrize("apps", [["blast", "bowtie2"], "blast,bowtie2", " blast , bowtie2 ,"])
def test_apps_as_list_or_text(apps: Any) -> None:
    assert parse_profile({"apps": apps}).apps == ["blast", "bowtie2"]


@pytest.mark.parametrize(
    ("said", "host"),
    [
        ({"host": "10.0.0.7"}, "10.0.0.7"),
        ({"hostname": "n7", "host_ip": "10.0.0.7"}, "10.0.0.7"),
        ({"hostname": "n7", "host_ip": ""}, "n7"),
        ({"host": None}, ""),
    ],
)
def test_host_in_every_spelling(said: dict[str, Any], host: str) -> None:
    assert parse_profile(said).host == host


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"id": "a/b"}, "id: 'a/b' is not a client id; leave it out to get one"),
        ({"id": 5}, "id: must be text"),
        ({"name": "a\nb"}, "name: has a control character"),
        ({"name": "x" * 256}, "name: is longer than 255 characters"),
        ({"group": "a b"}, "group: 'a b' is not a group name (letters, digits, '_', '-' and '.')"),
        ({"cores": -1}, "cores: must be a whole number, between 0 and 1000000"),
        ({"cores": 1.5}, "cores: must be a whole number, between 0 and 1000000"),
        ({"memory_bytes": "5"}, "memory_bytes: must be a whole number, 0 or more"),
        ({"apps": 5}, "apps: must be a list of names or text with commas"),
        ({"apps": [5]}, "apps: must be a list of names or text with commas"),
        ({"apps": ["a"] * (MAX_APPS + 1)}, f"apps: has more than {MAX_APPS} entries"),
        ({"apps": ["a\0"]}, "apps: has a control character"),
        (
            {"current_work": "x"},
            "current_work: must be a map, a list, or an object {'data': list} of workunit ids",
        ),
        ({"current_work": [WORK] * (MAX_HOLDS + 1)}, f"current_work: has more than {MAX_HOLDS} entries"),
        ({"file_roots": "/data"}, "file_roots: must be a list"),
        ({"file_roots": ["/a", 5]}, "file_roots[1]: must be the path of a directory"),
        ({"file_roots": ["data"]}, "file_roots[0]: 'data' is not an absolute path"),
        ({"file_roots": ["/a/../b"]}, "file_roots[0]: '/a/../b' has a '..' part"),
        ({"native": "yes"}, "native: must be true or false"),
        ({"native": True}, "incarnation: is missing; a native client names each of its runs"),
        ([], "the profile must be a JSON object"),
    ],
)
def test_refused(said: Any, problem: str) -> None:
    with pytest.raises(InvalidDocument) as refusal:
        parse_profile(json.dumps(said).encode())
    assert refusal.value.problems == [problem]


@pytest.mark.parametrize("raw", [b"", b"x", b"[", b'{"a":1,"a":2}', b"\xff"])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidDocument):
        parse_profile(raw)


def test_a_huge_profile_is_too_large() -> None:
    with pytest.raises(TooLarge, match=f"the limit is {MAX_PROFILE_BYTES}"):
        parse_profile(b" " * (MAX_PROFILE_BYTES + 1))


def test_no_cores_means_one() -> None:
    assert parse_profile({"cores": 0}).cores == 1


def test_refusals_are_of_our_tree() -> None:
    assert issubclass(InvalidDocument, AweError)
