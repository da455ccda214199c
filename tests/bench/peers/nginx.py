"""Debian's nginx, serving the files of a folder by sendfile."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bench.harness.site import Child, wait_until
from tests.bench.peers.packages import debian, libraries
from tests.support.ports import HeldPort

CONFIGURATION = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 64; }}
http {{
  access_log off; sendfile on; tcp_nopush on;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ listen 127.0.0.1:{port} reuseport; root {folder}; }}
}}
"""


class Nginx:
    """One worker."""

    def __init__(self, folder: Path) -> None:
        root = debian("nginx-light")
        held = HeldPort()
        self.port = held.number
        held.close()
        environment = libraries(root)
        program = str(root / "usr/sbin/nginx")
        said = subprocess.run([program, "-v"], capture_output=True, text=True, env=environment)
        self.version = said.stderr.strip().rpartition(": ")[2]
        file = folder / "nginx.conf"
        file.write_text(CONFIGURATION.format(folder=folder, port=self.port))
        self._child = Child(
            [program, "-p", str(folder), "-e", "stderr", "-c", str(file)],
            folder / "nginx.log",
            **environment,
        )
        wait_until((folder / "nginx.pid").exists, "nginx runs")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.end()
