"""Vineyard."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.systems.base import ClientBase, ProcessServer, RunEnvironment, Unavailable, accepts


class VineyardServer(ProcessServer):
    """vineyardd with its local metadata service, no network port."""

    def start(self, run_environment: RunEnvironment) -> str:
        """Start it on a socket of its own."""
        programs = list(
            Path(run_environment.python).parent.parent.glob("lib/python*/site-packages/vineyard/bdist/vineyardd")
        )
        if not programs:
            raise Unavailable(f"the environment of {run_environment.python} has no vineyardd")
        command = [str(programs[0]), "--meta", "local", "--rpc=false", "--socket", str(run_environment.socket)]
        self.launch(
            run_environment,
            [*command, "--size", str(run_environment.capacity)],
            lambda: accepts(run_environment.socket),
        )
        return str(run_environment.socket)


class VineyardClient(ClientBase):
    """``put`` and ``get``."""

    def connect(self, address: str) -> None:
        """vineyard.connect."""
        self._vineyard = importlib.import_module("vineyard")
        self._client = self._vineyard.connect(address)

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """Client.put."""
        put: Callable[[Any], Any] = self._client.put
        return put

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """Client.get."""
        get: Callable[[Any], Any] = self._client.get
        return get

    def delete(self, tokens: Sequence[Any]) -> None:
        """``delete`` takes a list."""
        self._client.delete(list(tokens))

    def to_text(self, token: Any) -> str:
        """The ID as a number."""
        return str(int(token))

    def from_text(self, text: str) -> Any:
        """An ObjectID."""
        return self._vineyard.ObjectID(int(text))

    def versions(self) -> dict[str, str]:
        """Version of vineyard."""
        return {"vineyard": importlib.metadata.version("vineyard")}

    def close(self) -> None:
        """Client.close."""
        self._client.close()
