"""A process that uses one client of the Kubernetes API: ``python -m benchmarks.commands.client_worker``.

Arguments: the client, the work, the server's URL, the file of its authority, and the address of a store.

Clients: ``ours``; ``official``, the package ``kubernetes``; ``urllib3``, ours with connections made by that library;
``asyncio``, the official package's other face, which can only be imported here. Prints its figures as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OBJECTS = 1000  # that a publisher publishes
APPLIES = 2000
NAMESPACE = "stores"
TOKEN = "of-anybody"  # noqa: S105


def main(client: str, work: str, server: str, ca_file: str, address: str) -> None:
    """Do the work, and print what it cost."""
    begin = time.process_time()
    figures: dict[str, float] = {}
    if work == "import":
        _import(client)
        figures["import"] = time.process_time() - begin
    else:
        api = _connect(client, server, ca_file)
        api.get("/api/v1/nodes/node-a")
        before, begin, since = _memory("VmRSS"), time.process_time(), time.perf_counter()
        if work == "publish":
            figures["objects"] = _publish(api, address)
        elif work == "apply":
            for number in range(APPLIES):
                api.apply(f"/apis/x/v1/namespaces/{NAMESPACE}/things/{number}", _thing(number), "me")
            figures["per second"] = APPLIES / (time.perf_counter() - since)
            figures["each"] = (time.process_time() - begin) / APPLIES
        elif work == "list":
            names = api.list_into(lambda items: {item["metadata"]["name"] for item in items}, "/apis/x/v1/things")
            figures |= {"objects": len(names), "peak grows by": _memory("VmHWM") - before}
        elif work == "hold":
            kept = _hold(client, api, server)
            figures |= {"objects": len(kept), "grows by": _memory("VmRSS") - before}
        figures["processor"] = time.process_time() - begin
    print(json.dumps({**figures, "memory": _memory("VmRSS") - _memory("RssShmem")}))


def _import(client: str) -> None:
    if client == "official":
        import kubernetes.client
        import kubernetes.config
    elif client == "asyncio":
        import kubernetes.aio.client
        import kubernetes.aio.config  # noqa: F401
    else:
        import entrepot_operator.kubernetes.api
        import entrepot_operator.kubernetes.kubeconfig  # noqa: F401

        if client == "urllib3":
            import urllib3  # noqa: F401


def _connect(client: str, server: str, ca_file: str) -> Any:
    if client == "official":
        return _official(server, ca_file)
    from entrepot_operator.kubernetes.api import Api
    from entrepot_operator.kubernetes.credentials import ClusterCredentials

    ca = Path(ca_file).read_text(encoding="ascii")
    access = ClusterCredentials(server, NAMESPACE, ca=ca, token=TOKEN, tls_name="api.example")
    return Api(access) if client == "ours" else _with_urllib3(access)


def _with_urllib3(access: Any) -> Any:
    import urllib3
    from entrepot_operator.kubernetes.api import REQUEST_SECONDS, Api
    from entrepot_operator.kubernetes.connection import encoded

    pool = urllib3.PoolManager(ssl_context=access.tls(), server_hostname=access.tls_name, retries=False)

    class WithUrllib3(Api):
        def _try(self, method: str, target: str, body: Any, kind: str) -> tuple[int, Mapping[str, str], Any]:
            headers = urllib3.HTTPHeaderDict(self._headers())
            if body is not None:
                headers["Content-Type"] = kind
            data = None if body is None else encoded(body)
            answer = pool.request(method, access.server + target, body=data, headers=headers, timeout=REQUEST_SECONDS)
            self._note_time(answer.headers.get("Date"))
            return answer.status, answer.headers, answer.json()

    return WithUrllib3(access)


def _official(server: str, ca_file: str) -> Any:
    """The official client, with the methods that a publisher calls."""
    from datetime import datetime, timezone

    from entrepot_operator.kubernetes.errors import refused
    from kubernetes import client
    from kubernetes.client.exceptions import ApiException

    configuration: Any = client.Configuration(host=server, api_key={"BearerToken": f"Bearer {TOKEN}"})
    configuration.ssl_ca_cert = ca_file
    configuration.tls_server_name = configuration.assert_hostname = "api.example"
    connection: Any = client.ApiClient(configuration)

    class Official:
        def _ask(self, method: str, path: str, query: list[Any], body: Any = None, kind: str = "") -> Any:
            headers = {"Accept": "application/json", "Content-Type": kind or "application/json"}
            auth = ["BearerToken"]
            try:
                if hasattr(connection, "param_serialize"):  # from version 37 on
                    request = connection.param_serialize(method, path, {}, query, headers, body, auth_settings=auth)
                    answer = connection.call_api(*request, _request_timeout=15)
                    answer.read()
                    return connection.response_deserialize(answer, {"200": "object"}).data
                return connection.call_api(
                    *(path, method, {}, query, headers, body),
                    auth_settings=auth,
                    response_types_map={200: "object"},
                    _return_http_data_only=True,
                    _request_timeout=15,
                )
            except ApiException as error:
                raise refused(method, path, int(error.status or 0), json.loads(error.body or "{}")) from error

        def get(self, path: str) -> Any:
            return self._ask("GET", path, [])

        def apply(self, path: str, manifest: Any, manager: str) -> Any:
            query = [("fieldManager", manager), ("force", "true")]
            return self._ask("PATCH", path, query, manifest, "application/apply-patch+yaml")

        def read_all(self, path: str, *, labels: str = "") -> list[Any]:
            items: list[Any] = []
            self.list_into(items.extend, path, labels=labels)
            return items

        def list_into(self, take: Any, path: str, *, labels: str = "") -> Any:
            return take(self._items(path, labels))

        def _items(self, path: str, labels: str) -> Any:
            more: Any = ""
            while more is not None:
                query = [("limit", 500), ("labelSelector", labels), ("continue", more)]
                page = self._ask("GET", path, [pair for pair in query if pair[1]])
                yield from page["items"]
                more = page["metadata"].get("continue")

        @staticmethod
        def now() -> datetime:
            return datetime.now(timezone.utc)

    return Official()


def _publish(api: Any, address: str) -> int:
    import entrepot
    from entrepot_operator.publisher.limits import Limits
    from entrepot_operator.publisher.main import Publisher
    from entrepot_operator.publisher.snapshot import PublisherIdentity

    limits = Limits(max_objects=OBJECTS, writes_per_second=1000, burst=10_000)
    identity = PublisherIdentity("node-a", "default")
    publisher = Publisher(api, lambda: entrepot.connect(address), identity, NAMESPACE, limits)
    return publisher.publish_all(300).desired


def _hold(client: str, api: Any, server: str) -> Any:
    """Everything published, as an operator keeps it: in our index, or in the cache of the official informer.

    That informer cannot list custom resources by itself, so its cache is filled for it.
    """
    if client == "official":
        from kubernetes.informer.cache import ObjectCache

        cache = ObjectCache(key_func=lambda item: item["metadata"]["name"])
        cache._replace_all(api.read_all(f"/apis/entrepot.dev/v1alpha1/namespaces/{NAMESPACE}/localobjects"))
        return cache.list_keys()
    from datetime import datetime, timezone

    from entrepot_operator.controller.cache.cluster_cache import ClusterCache
    from entrepot_operator.controller.work_queue import WorkQueue
    from entrepot_operator.kubernetes.api import Api

    cluster = ClusterCache(NAMESPACE, lambda: Api(api.access), WorkQueue(), lambda: datetime.now(timezone.utc))
    informer = cluster.informers["localobjects"]
    informer.start()
    end = time.monotonic() + 60
    while not informer.synced:
        if informer.problem is not None or time.monotonic() > end:
            raise RuntimeError(f"the objects were not read: {informer.problem}")
        time.sleep(0.01)
    return cluster.index


def _thing(number: int) -> dict[str, Any]:
    spec = {"node": "node-a", "bytes": number, "names": [f"name-{number}"], "objectID": f"{number:040x}"}
    return {"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": str(number)}, "spec": spec}


def _memory(what: str) -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(f"{what}:"))


if __name__ == "__main__":
    main(*sys.argv[1:])
