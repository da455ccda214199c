"""Objects of all three kinds of stores: written, read whole and in pieces, of one version, and removed.

Those at gs:// are in the S3 server of tests, which answers the calls of Google's XML API that obstore makes.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from awe_server.data.objects import (
    ObjectChanged,
    ObjectMissing,
    ObjectRefused,
    Objects,
)
from shared_models.limits import MIB
from tests.support.azurite import Azurite, azurite
from tests.support.s3 import S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = pytest.mark.anyio

DATA = bytes(range(256)) * 4096 * 20


@dataclass
class Bucket:
    """A bucket of a store."""

    scheme: str
    name: str

    def url(self, key: str) -> str:
        return f"{self.scheme}://{self.name}/{key}"


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    if azurite() is None:
        pytest.skip("no azurite-blob here: npm install --global azurite")
    with Azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(params=["s3", "gs", "az"])
def bucket(request: pytest.FixtureRequest, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    scheme = request.param
    if scheme == "az":
        server: Azurite = request.getfixturevalue("azure")
        env, name = server.env(), server.container()
    else:
        name = s3_server.bucket(f"test{uuid.uuid4().hex}")
        google = {"BASE_URL": s3_server.endpoint, "BEARER_TOKEN": "not-a-secret", "ALLOW_HTTP": "true"}
        env = {f"GOOGLE_{key}": value for key, value in google.items()} if scheme == "gs" else s3_server.env()
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    return Bucket(scheme, name)


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), MIB):
        yield data[start : start + MIB]


async def read(url: str, *piece: int, etag: str = "") -> bytes:
    return b"".join([part async for part in Objects().read(url, *piece, etag=etag)])


@pytest.mark.parametrize("size", [0, 10, len(DATA)])
async def test_an_object_is_what_was_put(bucket: Bucket, size: int) -> None:
    objects, url, data = Objects(), bucket.url("a%20b/c"), DATA[:size]
    for _ in range(2):
        await objects.put(url, chunks(data), size)
    found = await objects.head(url)
    assert found.size_bytes == size
    if size:
        assert await read(url, etag=found.etag) == data
        assert await read(url, size // 2, 3) == data[size // 2 : size // 2 + 3]
    for _ in range(2):
        await objects.delete(url)
    with pytest.raises(ObjectMissing):
        await objects.head(url)


async def test_an_object_that_was_replaced_is_not_the_one_that_was_looked_at(bucket: Bucket) -> None:
    objects, url = Objects(), bucket.url("x")
    await objects.put(url, chunks(b"first"), 5)
    etag = (await objects.head(url)).etag
    await objects.put(url, chunks(b"other"), 5)
    with pytest.raises(ObjectChanged):
        await read(url, etag=etag)


@pytest.mark.parametrize("size", [10, len(DATA)])
async def test_an_upload_that_breaks_off_leaves_no_object(bucket: Bucket, size: int) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for chunk in chunks(DATA[:size]):
            yield chunk
        raise ObjectRefused("it broke off")

    url = bucket.url("x")
    with pytest.raises(ObjectRefused, match="it broke off"):
        await Objects().put(url, broken(), size)
    with pytest.raises(ObjectMissing):
        await Objects().head(url)


async def test_a_bucket_that_is_not_there_is_named(bucket: Bucket) -> None:
    with pytest.raises(ObjectRefused, match="there is no bucket nobodysbucket"):
        await Objects().put(f"{bucket.scheme}://nobodysbucket/x", chunks(b"x"), 1)
