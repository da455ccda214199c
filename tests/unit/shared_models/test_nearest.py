"""Suggestions help and are quick."""

import pytest

from shared_models.nearest import did_you_mean, near_miss, nearest
from shared_models.placeholders import placeholder_in, placeholder_in_name
from tests.support.cost import cpu_below

KNOWN = ["filename", "host", "node", "url", "origin", "dependsOn", "totalwork"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("filname", "filename"),
        ("FILENAME", "filename"),
        ("depends_on", "dependsOn"),
        ("totalWorks", "totalwork"),
        ("zzz", None),
        ("", None),
        ("x" * 10_000, None),
    ],
)
def test_nearest(word: str, meant: str | None) -> None:
    assert nearest(word, KNOWN) == meant


def test_did_you_mean_is_a_tail_or_nothing() -> None:
    assert did_you_mean("hots", KNOWN) == "; did you mean 'host'?"
    assert did_you_mean("zzz", KNOWN) == ""


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("reads.fn", "reads.fna"),
        ("raeds.fna", "reads.fna"),
        ("Reads.fna", "reads.fna"),
        ("reads.fna", None),
        ("host.org", None),
        ("r", None),
        ("other.fna", None),
    ],
)
def test_near_miss_is_stricter_and_not_the_name_itself(word: str, meant: str | None) -> None:
    assert near_miss(word, ["reads.fna", "ref.db"]) == meant


def test_many_known_names_do_not_take_long() -> None:
    with cpu_below(2.0):
        nearest("task_99999x", [f"task_{i}" for i in range(100_000)])


@pytest.mark.parametrize(
    ("text", "anywhere", "in_name"),
    [
        ("#jobname.prep.fna", "#jobname", "#jobname"),
        ("http://#shockurl", "#shockurl", "#shockurl"),
        ("x_#user_y", "#user", "#user"),
        ("#sample.fq", None, "#sample"),
        ("sample#1.fq", None, None),
        ("a#b", None, None),
        ("#users", None, "#users"),
        ("plain", None, None),
    ],
)
def test_placeholders(text: str, anywhere: str | None, in_name: str | None) -> None:
    assert placeholder_in(text) == anywhere
    assert placeholder_in_name(text) == in_name
