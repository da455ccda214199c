"""host, node, url and origin of a file come out in one form; what cannot be reached is refused."""

from typing import Any

import pytest

from shared_models.documents import IO
from shared_models.errors import InvalidDocument
from shared_models.locations import OwnHosts, Reach, settle_input, settle_output
from shared_models.roots import NO_ROOTS, outside, root_of
from tests.unit.shared_models.samples import NODE, OTHER_NODE, OWN, parse_task

SHOCK = "http://shock:7445"
SCHEMES = "http, https, file, s3, gs or az"
NO_HOST = "there can be no host '{}'"
ROOTS = ["/data", "/shared/my files"]
LOGIN = (
    "holds a user name or password, which everybody who sees the job would see; "
    "servers and clients have logins in their own configuration, and Shocks are sent the job's data token"
)


def closed(path: str) -> str | None:
    return None if root_of(path, ROOTS) else outside(path, ROOTS)


OURS = Reach(OwnHosts([OWN, "awe.example.org:80", "https://site.org/awe/"]), closed)


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
        "http://my_host.example.org./x",
        "http://10.0.0.1:8080/x",
        "http://[2001:db8::1]/x",
        "http://bücher.example/x",
        "http://xn--bcher-kva.example/x",
        "http://例え.テスト/x",
        "http://भारत.example/x",
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
        *(
            ({"url": f"http://{host}/x"}, f"url: Not a valid url: http://{host}/x: {NO_HOST.format(host)}")
            for host in ("☃.net", "xn--a", "xn--.net", "999.1.1.1", "a..b", ".", "a" * 64, "a•b", "ａ.net")
        ),
        (
            {"url": f"http://☃.net/node/{NODE}?download"},
            f"url: Not a valid url: http://☃.net/node/{NODE}?download: {NO_HOST.format('☃.net')}",
        ),
        (
            {"host": "https://☃.net", "node": NODE},
            f"host: Not a valid url: https://☃.net/: {NO_HOST.format('☃.net')}",
        ),
        ({"url": "http://h/a\nb"}, "url: Not a valid url: http://h/a\nb"),
        (
            {"url": "sftp://h/x"},
            f"url: data cannot be read from 'sftp:' addresses; use a node, an origin, or a URL of {SCHEMES}",
        ),
        (
            {"host": "ftp://h", "node": NODE},
            "host: 'ftp://h' is not the address of a Shock, which begins with http:// or https://",
        ),
        (
            {"host": "file:///data", "node": NODE},
            "host: 'file:///data' is not the address of a Shock, which begins with http:// or https://",
        ),
        ({"url": "https://anna:secret@h/x"}, f"url: {LOGIN}"),
        ({"host": "https://anna@h", "node": NODE}, f"host: {LOGIN}"),
        ({"url": "s3://KEY:SECRET@bucket/key"}, f"url: {LOGIN}"),
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
    assert "secret" not in str(refusal.value).lower()
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
    ("given", "url"),
    [
        ({"url": "http://h/x"}, "http://h/x"),
        ({"url": "https://h:8443/x?signature=1/", "shockfilename": ""}, "https://h:8443/x?signature=1/"),
        ({"url": "http://h/x/"}, "http://h/x/f"),
        ({"url": "http://h/x/", "shockfilename": "a b+é.fna"}, "http://h/x/a%20b%2B%C3%A9.fna"),
        ({"url": "http://h/x/name.fna", "shockfilename": "name.fna"}, "http://h/x/name.fna"),
        ({"url": "http://h/x", "host": OWN}, "http://h/x"),
        ({"url": "file:///data/x/y.fna"}, "file:///data/x/y.fna"),
        ({"url": "FILE://localhost/data//x/./"}, "file:///data/x/f"),
        ({"url": "file:///shared/my%20files/"}, "file:///shared/my%20files/f"),
        ({"url": "file:///data/", "shockfilename": "100% a b.fna"}, "file:///data/100%25%20a%20b.fna"),
        ({"url": "file:///data/", "filename": "sub/f"}, "file:///data/sub/f"),
        ({"url": "file:///data/", "filename": "sub/out/"}, "file:///data/out.tar"),
        ({"url": "S3://Bucket/key"}, "s3://Bucket/key"),
        ({"url": "s3://bucket"}, "s3://bucket/f"),
        ({"url": "gs://bucket/folder/"}, "gs://bucket/folder/f"),
        ({"url": "az://container/a%20b/é+/"}, "az://container/a%20b/%C3%A9+/f"),
    ],
)
def test_an_output_goes_to_a_url(given: dict[str, str], url: str) -> None:
    io = IO(**{"filename": "f", **given})
    for _ in range(2):  # a settled document may be submitted again
        assert settle_output(io, OURS) is None
        assert (io.host, io.node, io.url) == ("", "", url)


@pytest.mark.parametrize("host", [SHOCK, SHOCK + "/"])
def test_an_output_goes_to_another_shock(host: str) -> None:
    io = IO(filename="f", host=host, node="-")
    assert settle_output(io, OURS) is None
    assert (io.host, io.node, io.url) == (SHOCK, "", "")


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"node": NODE}, {"node": NODE}),
        ({"url": f"{OWN}/node/{NODE}?download"}, {"node": NODE}),
        ({"origin": "0", "host": SHOCK, "node": NODE}, {"origin": "0"}),
    ],
)
def test_an_update_is_of_a_node(given: dict[str, str], place: dict[str, str]) -> None:
    io = IO(filename="f", type="update", **given)
    assert settle_output(io, OURS) is None
    assert io.model_dump(include={"host", "node", "url", "origin"}, exclude_defaults=True) == place


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"host": SHOCK, "node": NODE},
            "node: an output makes its own node in another Shock; give only host",
        ),
        (
            {"url": f"{SHOCK}/node/{NODE}?download"},
            "node: an output makes its own node in another Shock; give only host",
        ),
        (
            {"url": "ftp://h/x"},
            f"url: data cannot be written to 'ftp:' addresses; use a Shock's host, or a URL of {SCHEMES}",
        ),
        (
            {"url": "http://h/x", "host": SHOCK},
            f"host: '{SHOCK}' is given beside a url; leave out one of them",
        ),
        (
            {"url": f"{OWN}/job"},
            f"url: '{OWN}/job' is an address of this server; leave url out to keep the file here",
        ),
        (
            {"url": "https://site.org/awe/x"},
            "url: 'https://site.org/awe/x' is an address of this server; leave url out to keep the file here",
        ),
        (
            {"url": "http://h/x", "shockfilename": "y"},
            "url: names the file, and so does shockfilename 'y'; leave that out, or end with '/'",
        ),
        ({"url": "file:///etc/"}, f"url: {outside('/etc/f', ROOTS)}"),
        (
            {"url": "file:///data/../etc/x"},
            "url: '/data/../etc/x' has a '..' part; write the path it leads to",
        ),
        (
            {"url": "s3://b/k", "type": "copy"},
            "url: outputs of type 'copy' are nodes of this server; leave url out",
        ),
        (
            {"host": SHOCK, "type": "subset"},
            "host: outputs of type 'subset' are nodes of this server; leave host out",
        ),
        (
            {"host": SHOCK, "node": NODE, "type": "update"},
            "host: outputs of type 'update' are nodes of this server; leave host out",
        ),
        (
            {"host": "http://#shockurl"},
            "host: 'http://#shockurl' still has the template placeholder '#shockurl'; "
            "fill it in before submitting (awe submit --set shockurl=VALUE)",
        ),
        ({"url": "s3://KEY:SECRET@bucket/key"}, f"url: {LOGIN}"),
        ({"url": "http://xn--a/"}, f"url: Not a valid url: http://xn--a/: {NO_HOST.format('xn--a')}"),
        ({"host": "http://☃.net"}, f"host: Not a valid url: http://☃.net/: {NO_HOST.format('☃.net')}"),
    ],
)
def test_refused_output(given: dict[str, str], problem: str) -> None:
    assert settle_output(IO(filename="f", **given), OURS) == problem


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("file:///data/a.fna", "file:///data/a.fna"),
        ("file:/data/a.fna", "file:///data/a.fna"),
        ("file://localhost/data/a.fna", "file:///data/a.fna"),
        ("File:///data//sub/./a.fna", "file:///data/sub/a.fna"),
        ("file:///data/%C3%A4%20b%25.fna", "file:///data/%C3%A4%20b%25.fna"),
        ("file:///data/äöü.fna", "file:///data/%C3%A4%C3%B6%C3%BC.fna"),
        ("file:///data/%61.fna", "file:///data/a.fna"),
        ("file:///shared/my%20files/x", "file:///shared/my%20files/x"),
        (f"file:///data/node/{NODE}", f"file:///data/node/{NODE}"),
        ("s3://bucket/folder/reads.fna", "s3://bucket/folder/reads.fna"),
        (f"s3://bucket/node/{NODE}", f"s3://bucket/node/{NODE}"),
        ("GS://bucket/a%20b/ä", "gs://bucket/a%20b/%C3%A4"),
        ("az://container/blob@1", "az://container/blob@1"),
    ],
)
def test_files_and_objects_have_one_spelling(given: str, url: str) -> None:
    assert settled(url=given) == {"url": url}
    assert settled(url=url) == {"url": url}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///etc/passwd", outside("/etc/passwd", ROOTS)),
        ("file:///database/x", outside("/database/x", ROOTS)),
        ("file:///data", outside("/data", ROOTS)),
        ("file:///data/../etc/passwd", "'/data/../etc/passwd' has a '..' part; write the path it leads to"),
        (
            "file:///data/%2e%2e/etc/passwd",
            "'/data/../etc/passwd' has a '..' part; write the path it leads to",
        ),
        (
            "file:///data/%2E%2E%2Fetc",
            "'file:///data/%2E%2E%2Fetc' has an escaped slash (%2F); no name has a slash in it",
        ),
        ("file:///data/a%00b", r"'/data/a\x00b' has a control character"),
        ("file:///data/a\0b", r"'/data/a\x00b' has a control character"),
        ("file:///data/a%0ab", r"'/data/a\nb' has a control character"),
        ("file:///data/a%ffb", "'file:///data/a%ffb' is not UTF-8"),
        ("file:///data/100%", "'file:///data/100%' has a '%' without two hex digits; a '%' in a name is %25"),
        ("file:///data/a b", "'file:///data/a b' has a ' '; if it is part of the name, write %20"),
        ("file:///data/a?b", "'file:///data/a?b' has a '?'; if it is part of the name, write %3F"),
        ("file:///data/a#b", "'file:///data/a#b' has a '#'; if it is part of the name, write %23"),
        (
            "file://otherhost/data/x",
            "'file://otherhost/data/x' names the host 'otherhost'; a file URL has three slashes and an "
            "absolute path, as in file:///data/reads.fna",
        ),
        (
            "file://data/x",
            "'file://data/x' names the host 'data'; a file URL has three slashes and an absolute path, as in "
            "file:///data/reads.fna",
        ),
        ("file:data/x", "'file:data/x' is not of the form file:///absolute/path"),
        ("file:////data/x", "'file:////data/x' is not of the form file:///absolute/path"),
        ("file:", "'file:' is not of the form file:///absolute/path"),
        ("file:///data/sub/", "'file:///data/sub/' names a directory; name the file in it"),
        ("file:///", "'file:///' names a directory; name the file in it"),
        (f"file:///data/{'a' * 256}", f"'/data/{'a' * 194}' has a part longer than 255 bytes"),
        (f"file:///data{'/abcdefg' * 200}", f"'/data{'/abcdefg' * 24}/ab' is longer than 1024 bytes"),
        ("s3://bucket", "'s3://bucket/' names a directory; name the file in it"),
        ("s3:///key", "'s3:///key' is not of the form s3://bucket/key"),
        ("gs://b/key", "'b' is no bucket's name (letters, digits, '-', '_' and '.', at least 2)"),
        ("s3:bucket/key", "'s3:bucket/key' is not of the form s3://bucket/key"),
        ("s3://bucket/a/../b", "the key 'a/../b' has a '..' part; write the path it leads to"),
        ("az://bucket/a%2fb", "'az://bucket/a%2fb' has an escaped slash (%2F); no name has a slash in it"),
        (
            "s3://bucket/a//b",
            "the key 'a//b' has an empty or '.' part, which object stores do not agree about",
        ),
        (
            "s3://bucket/a?versionId=1",
            "'s3://bucket/a?versionId=1' has a '?'; if it is part of the name, write %3F",
        ),
        ("s3://bucket/a%00", r"the key 'a\x00' has a control character"),
    ],
)
def test_F_08_refused_files_and_objects(url: str, reason: str) -> None:
    assert settle_input(IO(filename="f", url=url), OURS) == f"url: {reason}"


def test_without_roots_no_file_is_open_to_jobs() -> None:
    io = IO(filename="f", url="file:///data/x")
    assert settle_input(io, Reach(OwnHosts())) == f"url: {NO_ROOTS}"
    assert "--file-root" in NO_ROOTS


def test_without_own_hosts_every_host_is_foreign() -> None:
    io = IO(filename="f", host=OWN, node=NODE)
    assert settle_input(io, Reach(OwnHosts())) is None
    assert io.host == OWN


def test_a_nonsense_own_host_matches_nothing() -> None:
    assert OWN not in OwnHosts(["", "http://[", "http://h:x"])
    assert not OwnHosts([""]).hold("http://[")
