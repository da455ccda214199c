"""An Azure blob service for tests: Microsoft's own emulator, where it is installed, on a free loopback port.

It is no package of Python: `npm install --global azurite` brings `azurite-blob`.
"""

import base64
import hashlib
import hmac
import re
import shutil
import subprocess
import uuid
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tests.support.eventually import eventually_sync
from tests.support.ports import HeldPort

#: The emulator's account; both are in its documentation.
ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_API = "2021-08-06"


def azurite() -> str | None:
    """Its program, if it is installed."""
    return shutil.which("azurite-blob")


class Azurite:
    """The emulator, as long as the with statement lasts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = HeldPort()
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"http://127.0.0.1:{self._held.number}/{ACCOUNT}"

    def __enter__(self) -> Self:
        program = azurite()
        assert program is not None
        log = self._folder / "log"
        command = [program, "--location", str(self._folder), "--disableTelemetry", "--skipApiVersionCheck"]
        command += ["--blobHost", "127.0.0.1", "--blobPort", str(self._held.number)]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self._folder)

        def listens() -> bool:
            assert process.poll() is None, log.read_text()
            return re.search(r"successfully listen", log.read_text()) is not None

        self._process = process
        eventually_sync(listens, within_s=60.0, show=log.read_text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._held.close()

    def env(self) -> dict[str, str]:
        """What a process needs in its environment to reach it."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_ALLOW_HTTP": "true",
        }

    def container(self) -> str:
        """Create a container; returns its name."""
        name = f"test{uuid.uuid4().hex}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _API}
        signed = "".join(f"{key}:{value}\n" for key, value in headers.items())
        text = f"PUT{12 * chr(10)}{signed}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        digest = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        url = f"{self.endpoint}/{name}?restype=container"
        httpx.put(url, headers=headers, trust_env=False).raise_for_status()
        return name
