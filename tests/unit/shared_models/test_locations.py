"""host, node, url and origin of a file come out in one form; what cannot be reached is refused."""

from typing import Any

import pytest

from shared_models.documents import IO
from shared_models.errors import InvalidDocument
from shared_models.locations import OwnHosts, Reach, settle_input, settle_output
from tests.unit.shared_models.samples import NODE, OTHER_NODE, OWN, parse_task

SHOCK = "http://shock:7445"
NOT_HERE = "is not this server, and outputs are kept only here"
OURS = Reach(OwnHosts([OWN, "awe.example.org:80", "https://site.org/awe/"]))


def settled(**given: Any) -> dict[str, Any]:
    io = IO(filename="f", **given)
    assert settle_input(io, OURS) is None
    return io.model_dump(include={"host", "node", "url", "origin"}, exclude_defaults=True)


@pytest.mark.parametrize(
    "given",
    [
        {"node": NODE},
        {"node": NODE.upper()},
        {"host": OWN, "node": NODE},
        {"host": OWN + "/", "node": NODE},
        {"host": "127.0.0.1:8001", "node": NODE},
        {"host": "http://awe.example.org", "node": NODE},
        {"host": "HTTPS://Site.ORG/awe", "node": NODE},
        {"url": f"{OWN}/node/{NODE}?download"},
        {"url": f"{OWN}/node/{NODE}"},
        {"url": f"{OWN}/node/{NODE}/?download&index=record&part=1"},
        {"url": f"/node/{NODE}?download"},
        {"url": f"{OWN}/node/{NODE}?download", "host": SHOCK, "node": NODE},
        {"url": f"https://site.org/awe/node/{NODE}"},
    ],
)
def test_own_node(given: dict[str, str]) -> None:
    assert settled(**given) == {"node": NODE}


@pytest.mark.parametrize(
    "given",
    [
        {"host": SHOCK, "node": NODE},
        {"host": SHOCK + "/", "node": NODE, "url": ""},
        {"url": f"{SHOCK}/node/{NODE}"},
        {"url": f"{SHOCK}/node/{NODE}?download", "host": OWN, "node": "-"},
    ],
)
def test_foreign_node(given: dict[str, str]) -> None:
    assert settled(**given) == {"host": SHOCK, "node": NODE, "url": f"{SHOCK}/node/{NODE}?download"}


def test_a_query_of_a_foreign_node_is_kept() -> None:
    url = f"{SHOCK}/node/{NODE}?download&seek=5"
    assert settled(url=url) == {"host": SHOCK, "node": NODE, "url": url}


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/data/reads.fna",
        "HTTPS://example.org:8443/x?y=1#z",
        f"{OWN}/other/file",
        f"https://site.org/node/{NODE[:-1]}",
        "http://h/%2e%2e%2f%2e%2e%2fetc/passwd",
        f"http://h/../node/{NODE}x",
    ],
)
def test_plain_url(url: str) -> None:
    assert settled(url=url, host=SHOCK) == {"url": url}


def test_an_origin_says_it_all() -> None:
    assert settled(origin="0", host=SHOCK, node=OTHER_NODE, url="http://h/x") == {"origin": "0"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "node: is missing; a file comes from a node, a url, or an origin task"),
        ({"host": SHOCK}, "node: is missing; a file comes from a node, a url, or an origin task"),
        (
            {"host": SHOCK, "node": "-"},
            "node: is missing; a file comes from a node, a url, or an origin task",
        ),
        ({"node": "../x"}, "node: '../x' is not a node id (a uuid)"),
        ({"url": "reads.fna"}, "url: Not a valid url: reads.fna"),
        ({"url": "http://h"}, "url: Not a valid url: http://h"),
        ({"url": "http:///x"}, "url: Not a valid url: http:///x"),
        ({"url": "http://h:port/x"}, "url: Not a valid url: http://h:port/x"),
        ({"url": "http://[::1/x"}, "url: Not a valid url: http://[::1/x"),
        ({"url": "http://h/a b"}, "url: Not a valid url: http://h/a b"),
        ({"url": "http://h/a\nb"}, "url: Not a valid url: http://h/a\nb"),
        (
            {"url": "file:///etc/passwd"},
            "url: data cannot be read from 'file:' addresses; use a node, an origin, or an http(s) URL",
        ),
        (
            {"url": "s3://bucket/key"},
            "url: data cannot be read from 's3:' addresses; use a node, an origin, or an http(s) URL",
        ),
        (
            {"host": "ftp://h", "node": NODE},
            "host: data cannot be read from 'ftp:' addresses; use a node, an origin, or an http(s) URL",
        ),
        ({"host": "shock:7445", "node": NODE}, "host: 'shock:7445' needs a scheme, as in http://shock:7445"),
        ({"host": "shock", "node": NODE}, "host: 'shock' needs a scheme, as in http://shock"),
        ({"host": "http://h h", "node": NODE}, "host: Not a valid url: http://h h/"),
        (
            {"url": f"{OWN}/node/{NODE}", "node": OTHER_NODE},
            f"node: '{OTHER_NODE}' is not the node of the url, '{NODE}'",
        ),
        (
            {"host": "http://#shockurl", "node": "#shocknode"},
            "host: 'http://#shockurl' still has the template placeholder '#shockurl'; "
            "fill it in before submitting (awe submit --set shockurl=VALUE)",
        ),
    ],
)
def test_refused_input(given: dict[str, str], problem: str) -> None:
    assert settle_input(IO(filename="f", **given), OURS) == problem
    with pytest.raises(InvalidDocument) as refusal:
        parse_task(predata=[{"filename": "f", **given}])
    assert refusal.value.problems == [f"tasks[0].predata[0].{problem}"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"host": OWN},
        {"node": "-"},
        {"host": OWN, "node": NODE},
        {"url": f"{OWN}/node/{NODE}?download"},
        {"type": "basic"},
    ],
)
def test_an_output_is_kept_here(given: dict[str, str]) -> None:
    io = IO(filename="f", **given)
    assert settle_output(io, OURS) is None
    assert (io.host, io.node, io.url) == ("", "", "")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"host": SHOCK}, f"host: '{SHOCK}' {NOT_HERE}; leave host out"),
        ({"url": "http://h/x"}, f"url: 'http://h/x' {NOT_HERE}; leave url out"),
        ({"url": "s3://b/k"}, f"url: 's3://b/k' {NOT_HERE}; leave url out"),
        ({"type": "copy"}, "type: outputs of type 'copy' are not supported; leave it out to store the file"),
        (
            {"host": "http://#shockurl"},
            "host: 'http://#shockurl' still has the template placeholder '#shockurl'; "
            "fill it in before submitting (awe submit --set shockurl=VALUE)",
        ),
    ],
)
def test_refused_output(given: dict[str, str], problem: str) -> None:
    assert settle_output(IO(filename="f", **given), OURS) == problem


def test_without_own_hosts_every_host_is_foreign() -> None:
    io = IO(filename="f", host=OWN, node=NODE)
    assert settle_input(io, Reach(OwnHosts())) is None
    assert io.host == OWN


def test_a_nonsense_own_host_matches_nothing() -> None:
    assert OWN not in OwnHosts(["", "http://[", "http://h:x"])
