"""Redis on a unix socket, without persistence."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.systems.base import ARRAY, BYTES, BytesClient, ProcessServer, RunEnvironment, Unavailable, accepts


def find_server(run_environment: RunEnvironment) -> tuple[str, dict[str, str]]:
    """Path of redis-server, and its environment variables: the machine's own, or the one unpacked by the harness.

    Raises:
        Unavailable: there is none.
    """
    on_path = shutil.which("redis-server")
    if on_path:
        return on_path, {}
    unpacked = Path(run_environment.python).parent.parent / "debian"
    if (unpacked / "usr/bin/redis-server").exists():
        folders = sorted({str(path.parent) for path in (unpacked / "usr/lib").rglob("*.so*")})
        return str(unpacked / "usr/bin/redis-server"), {"LD_LIBRARY_PATH": ":".join(folders)}
    raise Unavailable("no redis-server on PATH and none unpacked: install it (apt-get install redis-server)")


class RedisServer(ProcessServer):
    """redis-server."""

    def start(self, run_environment: RunEnvironment) -> str:
        """Start it; large values must be allowed explicitly."""
        program, variables = find_server(run_environment)
        options = [
            "--port",
            "0",
            "--appendonly",
            "no",
            "--proto-max-bulk-len",
            "8gb",
            "--client-query-buffer-limit",
            "8gb",
        ]
        command = [program, "--unixsocket", str(run_environment.socket), "--save", "", *options]
        self.launch(run_environment, command, lambda: accepts(run_environment.socket), **variables)
        return str(run_environment.socket)


class RedisClient(BytesClient):
    """SET and GET; arrays as their bytes, tables as Arrow streams."""

    def connect(self, address: str) -> None:
        """redis.Redis on the socket."""
        self._redis = importlib.import_module("redis")
        self._client = self._redis.Redis(unix_socket_path=address)
        self._client.ping()

    def _put(self, value: Any) -> bytes:
        token = os.urandom(20)
        self._client.set(token, value)
        return token

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """GET."""
        get: Callable[[Any], Any] = self._client.get
        if kind == BYTES:
            return get
        if kind == ARRAY:
            numpy = importlib.import_module("numpy")
            return lambda token: numpy.frombuffer(get(token), dtype=numpy.int64)
        arrow = importlib.import_module("pyarrow")
        return lambda token: arrow.ipc.open_stream(get(token)).read_all()

    def put_many(self, values: Sequence[bytes]) -> list[Any]:
        """MSET."""
        tokens = [os.urandom(20) for _ in values]
        self._client.mset(dict(zip(tokens, values, strict=True)))
        return tokens

    def get_many(self, tokens: Sequence[Any]) -> list[bytes]:
        """MGET."""
        return list(self._client.mget(list(tokens)))

    def delete(self, tokens: Sequence[Any]) -> None:
        """DEL."""
        if tokens:
            self._client.delete(*tokens)

    def to_text(self, token: Any) -> str:
        """The key in hex."""
        return str(token.hex())

    def from_text(self, text: str) -> Any:
        """The key."""
        return bytes.fromhex(text)

    def versions(self) -> dict[str, str]:
        """Versions of client and server."""
        return {"redis-py": self._redis.__version__, "redis-server": str(self._client.info()["redis_version"])}

    def close(self) -> None:
        """Redis.close."""
        self._client.close()
