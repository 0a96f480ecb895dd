"""Ray's object store: a single-node cluster, each client a driver of its own."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.systems.base import ClientBase, ProcessServer, RunEnvironment

# The head node: starts the cluster on the loopback address, reports its address, and stays.
HEAD = """
import pathlib, signal, sys
import ray
folder, capacity = pathlib.Path(sys.argv[1]), int(sys.argv[2])
found = ray.init(
    address="local", object_store_memory=capacity, include_dashboard=False, log_to_driver=False,
    _temp_dir=sys.argv[3], _node_ip_address="127.0.0.1", num_cpus=2,
)
def end(*_):
    ray.shutdown()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
(folder / "address.new").write_text(ray.get_runtime_context().gcs_address)
(folder / "address.new").rename(folder / "address")
while True:
    signal.pause()
"""
# Switches off usage reports, authentication between its own processes, and terminal output.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0"}


class RayServer(ProcessServer):
    """gcs_server, raylet and their children."""

    def start(self, run_environment: RunEnvironment) -> str:
        """Start the cluster; takes some seconds."""
        address = run_environment.folder / "address"
        # Ray's own sockets are deep below its directory, and their paths must stay short.
        command = [
            run_environment.python,
            "-c",
            HEAD,
            str(run_environment.folder),
            str(run_environment.capacity),
            str(run_environment.folder / "r"),
        ]
        self.launch(run_environment, command, address.exists, **QUIET)
        return address.read_text()


class RayClient(ClientBase):
    """``ray.put`` and ``ray.get``."""

    def connect(self, address: str) -> None:
        """ray.init as another driver of the same cluster."""
        os.environ.update(QUIET)
        self._ray = importlib.import_module("ray")
        self._pickle = importlib.import_module("ray.cloudpickle")
        self._ray.init(
            address=address, namespace="bench", log_to_driver=False, logging_level="ERROR", _node_ip_address="127.0.0.1"
        )

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """ray.put."""
        put: Callable[[Any], Any] = self._ray.put
        return put

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """ray.get."""
        get: Callable[[Any], Any] = self._ray.get
        return get

    def get_many(self, tokens: Sequence[Any]) -> list[bytes]:
        """``ray.get`` takes a list."""
        return list(self._ray.get(list(tokens)))

    def delete(self, tokens: Sequence[Any]) -> None:
        """Nothing to call: an object is freed soon after its last reference, which the caller drops."""

    def to_text(self, token: Any) -> str:
        """The pickled reference, which includes its owner."""
        return str(self._pickle.dumps(token).hex())

    def from_text(self, text: str) -> Any:
        """The reference."""
        return self._pickle.loads(bytes.fromhex(text))

    def versions(self) -> dict[str, str]:
        """Version of ray."""
        return {"ray": self._ray.__version__}

    def close(self) -> None:
        """ray.shutdown, of this driver."""
        self._ray.shutdown()
