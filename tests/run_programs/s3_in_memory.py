"""An S3 server on loopback, for tests."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

WATCHDOG_SECONDS = 60.0


class S3Server:
    """An in-memory S3 server in a process of its own."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self._port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        self._log = Path(tempfile.mkstemp(prefix="s3-")[1])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + WATCHDOG_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                log_text = self._log.read_text()
                self.stop()
                pytest.fail(f"the S3 server does not listen: {log_text}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    @property
    def options(self) -> dict[str, Any]:
        """Storage options for s3fs."""
        return {"key": "key", "secret": "secret", "client_kwargs": {"endpoint_url": self.endpoint}}

    def stop(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait(WATCHDOG_SECONDS)
        self._log.unlink(missing_ok=True)
