"""A process that uses the official Kubernetes client as Entrepot does: ``python -m benchmarks.commands.client_worker``.

Arguments: the work, the server's URL, the file of its authority, and the address of a store. Prints its figures as
JSON.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from typing import Any

OBJECTS = 1000  # that a publisher publishes
APPLIES = 2000
NAMESPACE = "stores"
TOKEN = "of-anybody"  # noqa: S105


def main(work: str, server: str, ca_file: str, address: str) -> None:
    """Do the work, and print what it cost."""
    begin = time.process_time()
    from entrepot_operator.kubernetes.api import Api
    from entrepot_operator.kubernetes.credentials import ClusterCredentials
    from entrepot_operator.kubernetes.official import Configuration

    figures: dict[str, Any] = {"version": version("kubernetes"), "import": time.process_time() - begin}
    if work != "import":
        configuration: Any = Configuration(host=server, api_key={"BearerToken": f"Bearer {TOKEN}"})
        configuration.ssl_ca_cert, configuration.tls_server_name = ca_file, "api.example"
        api = Api(ClusterCredentials(configuration, NAMESPACE))
        api.get("/api/v1/nodes/node-a")
        begin, since = time.process_time(), time.perf_counter()
        if work == "publish":
            figures["objects"] = _publish(api, address)
        elif work == "apply":
            for number in range(APPLIES):
                api.apply(f"/apis/x/v1/namespaces/{NAMESPACE}/things/{number}", _thing(number), "me")
            figures["per second"] = APPLIES / (time.perf_counter() - since)
            figures["each"] = (time.process_time() - begin) / APPLIES
        elif work == "operator":
            figures["before"], kept = _run_cache(api)
            figures["objects"] = len(kept)
        figures["processor"] = time.process_time() - begin
    print(json.dumps({**figures, "memory": _memory("VmRSS") - _memory("RssShmem")}))


def _publish(api: Any, address: str) -> int:
    import entrepot
    from entrepot_operator.publisher.limits import Limits
    from entrepot_operator.publisher.main import Publisher
    from entrepot_operator.publisher.snapshot import PublisherIdentity

    limits = Limits(max_objects=OBJECTS, writes_per_second=1000, burst=10_000)
    identity = PublisherIdentity("node-a", "default")
    publisher = Publisher(api, lambda: entrepot.connect(address), identity, NAMESPACE, limits)
    return publisher.publish_all(300).desired


def _run_cache(api: Any) -> tuple[int, Any]:
    """Memory after everything that an operator with a webhook imports, and the index of all published objects."""
    from datetime import datetime, timezone

    import entrepot_operator.controller.main
    import entrepot_operator.webhook.main  # noqa: F401
    from entrepot_operator.controller.cache.cluster_cache import ClusterCache
    from entrepot_operator.controller.work_queue import WorkQueue
    from entrepot_operator.kubernetes.api import Api

    before = _memory("VmRSS")
    cluster = ClusterCache(NAMESPACE, lambda: Api(api.access), WorkQueue(), lambda: datetime.now(timezone.utc))
    informer = cluster.informers["localobjects"]
    informer.start()
    end = time.monotonic() + 60
    while not informer.synced:
        if informer.problem is not None or time.monotonic() > end:
            raise RuntimeError(f"the objects were not read: {informer.problem}")
        time.sleep(0.01)
    return before, cluster.index


def _thing(number: int) -> dict[str, Any]:
    spec = {"node": "node-a", "bytes": number, "names": [f"name-{number}"], "objectID": f"{number:040x}"}
    return {"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": str(number)}, "spec": spec}


def _memory(what: str) -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(f"{what}:"))


if __name__ == "__main__":
    main(*sys.argv[1:])
