"""The soak's front end for Plasma clients, with what starts it again when it dies."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
from entrepot._daemon.launcher import is_listening
from entrepot._daemon.plasma_front_end import front_end_binary


class SoakFrontEnd:
    """An ``entrepot-plasma-store`` beside the soak's store.

    Attributes:
        socket: where Plasma clients connect.
    """

    def __init__(self, address: str, folder: Path, nbytes: int) -> None:
        self.socket = folder / "plasma.sock"
        self._log = folder / "front-end.log"
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._command = [str(front_end_binary()), "-s", str(self.socket), "-m", str(nbytes), "--address", address]

    def start(self) -> None:
        """Start it, without waiting until it listens."""
        with self._log.open("ab") as log:
            self._supervisor = subprocess.Popen([*self._command, "--keep-running"], stdout=log, stderr=log)

    def pid(self) -> int:
        """The process that serves; 0: there is none at the moment."""
        if self._supervisor is None:
            return 0
        children = psutil.Process(self._supervisor.pid).children()
        return next((child.pid for child in children if child.status() != psutil.STATUS_ZOMBIE), 0)

    def is_listening(self) -> bool:
        """Whether Plasma clients can connect."""
        return is_listening(f"unix://{self.socket}")

    def problem(self) -> str:
        """Why it has ended by itself; ``""``: it has not."""
        if self._supervisor is None or self._supervisor.poll() is None:
            return ""
        return f"the front end ended by itself with {self._supervisor.returncode}:\n{self._log.read_text()[-4000:]}"

    def end(self) -> None:
        """End it, and what starts it again."""
        if self._supervisor is None:
            return
        self._supervisor.terminate()
        try:
            self._supervisor.wait(20)
        finally:
            self._supervisor.kill()
            self._supervisor.wait()
            self._supervisor = None
