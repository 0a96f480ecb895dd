"""Vineyard."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.systems.base import ClientBase, Place, ProcessServer, Unavailable, accepts


class VineyardServer(ProcessServer):
    """vineyardd with its local metadata service, no network port."""

    def start(self, place: Place) -> str:
        """Start it on a socket of its own."""
        found = list(Path(place.python).parent.parent.glob("lib/python*/site-packages/vineyard/bdist/vineyardd"))
        if not found:
            raise Unavailable(f"the environment of {place.python} has no vineyardd")
        command = [str(found[0]), "--meta", "local", "--rpc=false", "--socket", str(place.socket)]
        self.launch(place, [*command, "--size", str(place.capacity)], lambda: accepts(place.socket))
        return str(place.socket)


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
