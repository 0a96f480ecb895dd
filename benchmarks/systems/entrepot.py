"""Entrepot itself."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.systems.base import ClientBase, ProcessServer, RunEnvironment, Unavailable, accepts

WARM_SECONDS = 120
# Run by the interpreter that has the package: the harness itself may not have this build of it.
WAIT = """
import sys, entrepot
with entrepot.connect(sys.argv[1], session="bench-wait") as store:
    store.wait_provisioned(float(sys.argv[2]))
"""


class EntrepotServer(ProcessServer):
    """entrepotd in the foreground, warm."""

    warm_all = False

    def start(self, run_environment: RunEnvironment) -> str:
        """Start it; its memory is provisioned when this returns."""
        address = f"unix://{run_environment.socket}"
        command = [
            run_environment.python,
            "-m",
            "entrepot.daemon_main",
            "--address",
            address,
            "--size",
            str(run_environment.capacity),
        ]
        if self.warm_all:
            command += ["--warm-bytes", str(run_environment.capacity)]
        self.launch(run_environment, command, lambda: accepts(run_environment.socket))
        waited = subprocess.run(
            [run_environment.python, "-c", WAIT, address, str(WARM_SECONDS)],
            env=run_environment.variables,
            capture_output=True,
            text=True,
            timeout=WARM_SECONDS + 30,
        )
        if waited.returncode != 0:
            self.stop()
            raise Unavailable(f"its memory did not become warm: {waited.stderr.strip()[-500:]}")
        return address


class WarmEntrepotServer(EntrepotServer):
    """With its whole capacity warmed before use; the default is 64 MiB."""

    warm_all = True


class EntrepotClient(ClientBase):
    """One connected store."""

    def connect(self, address: str) -> None:
        """Connect as any user does."""
        self._module = importlib.import_module("entrepot")
        self._store = self._module.connect(address, session="bench")

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """Store.put."""
        put: Callable[[Any], Any] = self._store.put
        return put

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """Store.get."""
        get: Callable[[Any], Any] = self._store.get
        return get

    def put_many(self, values: Sequence[bytes]) -> list[Any]:
        """Store.put_many."""
        return list(self._store.put_many(values))

    def get_many(self, tokens: Sequence[Any]) -> list[bytes]:
        """Store.get_many."""
        return list(self._store.get_many(tokens))

    def delete(self, tokens: Sequence[Any]) -> None:
        """One by one."""
        for token in tokens:
            self._store.delete(token)

    def holds(self, token: Any) -> bool:
        """Store.exists."""
        return bool(self._store.exists(token))

    def from_text(self, text: str) -> Any:
        """An ObjectID."""
        return self._module.ObjectID(text)

    def status(self) -> dict[str, Any]:
        """Store.status, which only Entrepot has."""
        return dict(self._store.status())

    def versions(self) -> dict[str, str]:
        """Of the package."""
        from importlib.metadata import version

        return {"entrepot": version("entrepot"), "package": str(self._module.__file__)}

    def close(self) -> None:
        """Store.close."""
        self._store.close()
