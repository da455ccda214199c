"""An S3 server for tests: moto on a free loopback port, in a process of its own.

It starts in one to three seconds, so one serves a whole run (fixture `s3_server`), and each test takes a
bucket of its own (fixture `s3_bucket`). It keeps objects in memory or unnamed files, believes any signature,
and answers ranges, If-Match and multipart uploads as S3 does. It ends with the process that started it.
"""

import os
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import httpx
import pytest

from tests.support.eventually import eventually_sync

REGION = "us-east-1"
_START = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print("port", server.server_port, flush=True)
server.serve_forever()
"""
#: Objects are private: moto wants to see a signature, though it believes any.
_SIGNED = {
    "Authorization": f"AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/s3/aws4_request, Signature=x"
}


class S3Server:
    """moto, as long as the with statement lasts or until `stop`."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx.Client(timeout=30, trust_env=False, headers=_SIGNED)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start and wait until it listens."""
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _START],
                stdin=subprocess.PIPE, stdout=log, stderr=log, env={**os.environ, **self.env()},
            )  # fmt: skip

            def listens() -> bool:
                text = os.pread(log.fileno(), 65536, 0).decode()
                assert process.poll() is None, text
                found = re.search(r"^port (\d+)$", text, re.MULTILINE)
                self.endpoint = f"http://127.0.0.1:{found[1]}" if found else ""
                return found is not None

            self._process = process
            eventually_sync(listens, within_s=60.0, show=lambda: os.pread(log.fileno(), 65536, 0))
        return self

    def stop(self) -> None:
        """End it with all that it stored."""
        self._http.close()
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=10)
            self._process = None

    def env(self) -> dict[str, str]:
        """What a process needs in its environment to reach it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def bucket(self, name: str = "") -> str:
        """Create a bucket; returns its name."""
        name = name or f"test-{uuid.uuid4().hex}"
        self._http.put(f"{self.endpoint}/{name}").raise_for_status()
        return name

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """Store an object; returns its s3:// URL."""
        self._http.put(f"{self.endpoint}/{bucket}/{key}", content=data).raise_for_status()
        return f"s3://{bucket}/{key}"

    def get(self, bucket: str, key: str) -> bytes | None:
        """What an object holds; None if there is none."""
        reply = self._http.get(f"{self.endpoint}/{bucket}/{key}")
        return None if reply.status_code == 404 else reply.raise_for_status().content

    def about(self, bucket: str, key: str) -> dict[str, str]:
        """What an object says of itself: the headers of a HEAD."""
        reply = self._http.head(f"{self.endpoint}/{bucket}/{key}", headers={"x-amz-checksum-mode": "ENABLED"})
        return dict(reply.raise_for_status().headers)

    def keys(self, bucket: str) -> list[str]:
        """The names of (at most 1000) objects."""
        reply = self._http.get(f"{self.endpoint}/{bucket}", params={"list-type": "2"}).raise_for_status()
        return re.findall(r"<Key>(.*?)</Key>", reply.text)

    def uploads(self, bucket: str) -> list[str]:
        """The keys of multipart uploads that were neither completed nor aborted."""
        reply = self._http.get(f"{self.endpoint}/{bucket}", params={"uploads": ""}).raise_for_status()
        return re.findall(r"<Key>(.*?)</Key>", reply.text)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One server for the whole run; nobody may stop it."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """A bucket of its own on that server."""
    return s3_server.bucket()
