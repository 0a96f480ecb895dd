"""One end of ``python -m benchmarks transport``: a process on a host of its own, with a store.

``serve STORE ADDRESS TRANSPORT COMPRESSION`` listens until its input ends. ``fetch STORE ADDRESS TRANSPORT
CONNECTIONS`` reads lines of JSON, each a list of object IDs, fetches these objects into its store, and answers by the
seconds that it took; then it deletes them.
"""

from __future__ import annotations

import json
import sys
import time

import entrepot
from entrepot import raw_objects
from entrepot.ids import ObjectID
from entrepot_cluster.transport.endpoints import Wanted
from entrepot_cluster.transport.fetching import fetch
from entrepot_cluster.transport.handshake import Identity
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.security import TransportSecurity
from entrepot_cluster.transport.server import GatewayServer
from entrepot_cluster.transport.store_endpoints import StoreSink, StoreSource

_OPEN = TransportSecurity(insecure=True)  # the hosts are namespaces of this machine


def serve(store: entrepot.Store, address: str, transport: str, compression: str) -> None:
    """Serve a store until the input ends."""
    own = Identity("benchmark", "serving")
    with GatewayServer(address, own, StoreSource(store), security=_OPEN, compression=compression, transport=transport):
        print("ready", flush=True)
        sys.stdin.read()


def fetch_all(store: entrepot.Store, address: str, transport: str, connections: int) -> None:
    """Fetch what the input says, as often as it says so."""
    own = Identity("benchmark", "fetching")
    with PeerConnections(address, own, security=_OPEN, connections=connections, transport=transport) as peer:
        peer.ping()
        print("ready", flush=True)
        for line in sys.stdin:
            ids = [ObjectID(text) for text in json.loads(line)]
            begin = time.perf_counter()
            outcomes = fetch(peer, [Wanted(oid.binary) for oid in ids], StoreSink(store))
            seconds = time.perf_counter() - begin
            failed = [outcome.error for outcome in outcomes if outcome.error is not None]
            if failed:
                raise failed[0]
            for oid in ids:
                raw_objects.discard(store, oid)
            print(json.dumps({"seconds": seconds, "nbytes": sum(outcome.nbytes for outcome in outcomes)}), flush=True)


def main() -> None:
    """Run one end."""
    what, store_address, address, transport, option = sys.argv[1:]
    with entrepot.connect(store_address) as store:
        if what == "serve":
            serve(store, address, transport, option)
        else:
            fetch_all(store, address, transport, int(option))


if __name__ == "__main__":
    main()
