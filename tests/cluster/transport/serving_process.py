"""A gateway server in a process of its own, for tests that kill or stop it: ``serving_process.py STORE [ADDRESS
[TRANSPORT]]``."""

from __future__ import annotations

import sys

import entrepot
from entrepot_cluster.transport.handshake import Identity
from entrepot_cluster.transport.security import TransportSecurity
from entrepot_cluster.transport.server import GatewayServer
from entrepot_cluster.transport.store_endpoints import StoreSource


def main() -> None:
    """Serve until the input ends."""
    address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:0"
    with (
        entrepot.connect(sys.argv[1]) as store,
        GatewayServer(
            address,
            Identity("tests", "serving"),
            StoreSource(store),
            security=TransportSecurity(insecure=True),
            progress_seconds=2.0,
            transport=sys.argv[3] if len(sys.argv) > 3 else "tcp",
        ) as server,
    ):
        print(server.address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
