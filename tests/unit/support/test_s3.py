"""obstore against the S3 server of tests: the calls that sources and sinks rest on."""

import hashlib
import os
import subprocess
import sys

import obstore
import pytest
from obstore.exceptions import PreconditionError
from obstore.store import S3Store, from_url

from tests.support.s3 import S3Server

MIB = 1024 * 1024


@pytest.fixture
def store(s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """A store that takes everything from its environment."""
    for name, value in s3_server.env().items():
        monkeypatch.setenv(name, value)
    found = from_url(f"s3://{s3_bucket}")
    assert isinstance(found, S3Store)
    return found


def test_put_head_range_list_delete(store: S3Store, s3_server: S3Server, s3_bucket: str) -> None:
    data = os.urandom(100_000)
    put = obstore.put(store, "a/b.bin", data)
    about = obstore.head(store, "a/b.bin")
    assert (about["size"], about["e_tag"]) == (len(data), put["e_tag"])
    assert about["e_tag"] == f'"{hashlib.md5(data).hexdigest()}"'
    assert bytes(obstore.get_range(store, "a/b.bin", start=1000, length=500)) == data[1000:1500]
    assert [entry["path"] for page in obstore.list(store, "a") for entry in page] == ["a/b.bin"]
    assert s3_server.get(s3_bucket, "a/b.bin") == data
    obstore.delete(store, "a/b.bin")
    assert s3_server.keys(s3_bucket) == []
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "a/b.bin")


def test_twenty_mib_go_up_in_parts(store: S3Store, s3_server: S3Server, s3_bucket: str) -> None:
    data = os.urandom(MIB) * 20
    put = obstore.put(store, "big", data, use_multipart=True, chunk_size=5 * MIB)
    assert str(put["e_tag"]).endswith('-4"')
    assert obstore.head(store, "big")["size"] == len(data)
    digest = hashlib.sha256()
    for piece in obstore.get(store, "big"):
        digest.update(piece)
    assert digest.digest() == hashlib.sha256(data).digest()
    assert s3_server.uploads(s3_bucket) == []


def test_a_changed_object_is_told_by_its_etag(store: S3Store, s3_server: S3Server, s3_bucket: str) -> None:
    s3_server.put(s3_bucket, "x", b"old")
    old = obstore.head(store, "x")["e_tag"]
    assert bytes(obstore.get(store, "x", options={"if_match": old, "range": (1, 3)}).bytes()) == b"ld"
    s3_server.put(s3_bucket, "x", b"new")
    with pytest.raises(PreconditionError):
        obstore.get(store, "x", options={"if_match": old, "range": (1, 3)})


def test_the_environment_is_enough_for_another_process(s3_server: S3Server, s3_bucket: str) -> None:
    url = s3_server.put(s3_bucket, "hello", b"hello there")
    script = (
        "import sys, obstore; from obstore.store import from_url\n"
        "head, _, key = sys.argv[1].rpartition('/')\n"
        "sys.stdout.buffer.write(obstore.get(from_url(head), key).bytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, url],
        env={**os.environ, **s3_server.env()}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"hello there"), done.stderr


def test_buckets_are_apart(s3_server: S3Server) -> None:
    one, other = s3_server.bucket(), s3_server.bucket()
    s3_server.put(one, "k", b"1")
    assert (s3_server.keys(one), s3_server.keys(other), s3_server.get(other, "k")) == (["k"], [], None)
