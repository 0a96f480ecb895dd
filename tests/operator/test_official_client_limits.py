"""The official client beside ours: timeouts, collections and what each costs, on which decisions 11 and 12 rest.

A test whose name begins with ``test_only`` fails once the official client learns what it lacks today: then look at
those decisions again.
"""

from __future__ import annotations

import pkgutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_operator.kubernetes import api as api_module
from entrepot_operator.kubernetes import credentials, exec_credentials
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.errors import ClusterUnavailable, ListExpired
from official_client import SECONDS, ask_official, ask_ours, custom_objects, official, official_plugin
from scripted_api import Event, ScriptedApiServer, thing
from tls_servers import NODE, PROXY_VARIABLES, Cluster


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.stop()


@pytest.fixture
def script() -> Iterator[ScriptedApiServer]:
    running = ScriptedApiServer()
    yield running
    running.stop()


def test_a_watch_sees_changes_bookmarks_and_expired_versions(script: ScriptedApiServer) -> None:
    events: list[Event] = [
        ("ADDED", thing("c", 11)),
        ("DELETED", thing("b", 13)),
        ("BOOKMARK", {"metadata": {"resourceVersion": "20"}}),
        ("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}),
    ]
    script.watches = [events, events]
    seen: list[tuple[str, str]] = []
    with pytest.raises(ListExpired):
        seen.extend(
            (kind, resource["metadata"]["resourceVersion"])
            for kind, resource in script.connect().watch("/apis/x/v1/things", "10")
        )
    ours, seen = seen, []
    stream = official.watch.Watch().stream(
        custom_objects(script.url).list_cluster_custom_object,
        *("x", "v1", "things"),
        resource_version="10",
        allow_watch_bookmarks=True,
        timeout_seconds=300,
        _request_timeout=SECONDS,
    )
    with pytest.raises(official.client.exceptions.ApiException) as caught:
        seen.extend((event["type"], event["object"]["metadata"]["resourceVersion"]) for event in stream)
    assert caught.value.status == 410
    assert ours[1:] == seen  # ours begins with a bookmark of its own, for a watch that has started
    first, second = script.watch_queries
    assert (first["resourceVersion"], first["allowWatchBookmarks"]) == ("10", "true")
    assert (second["resourceVersion"], second["allowWatchBookmarks"].lower()) == ("10", "true")


# What only ours does: limits.


def test_only_ours_gives_up_on_a_silent_server_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "REQUEST_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts connections, and nobody answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterUnavailable, match="timed out"):
            Api(credentials.ClusterCredentials(url), patience=0).get(NODE)
        configuration = official.client.Configuration(host=url)
        configuration.retries = False
        nodes = official.client.CoreV1Api(official.client.ApiClient(configuration))

        def ask() -> None:
            with suppress(Exception):
                nodes.read_node("a")

        waiting = threading.Thread(target=ask, daemon=True)
        waiting.start()
        waiting.join(1.0)
        assert waiting.is_alive()
        for _ in range(2):  # also ours is still waiting to be accepted
            silent.accept()[0].close()
    waiting.join(SECONDS)
    assert not waiting.is_alive()


def test_only_ours_bounds_how_long_a_server_may_ask_to_wait(server: Any) -> None:
    busy: tuple[int, dict[str, str], Any] = (429, {"Retry-After": "1"}, {"message": "busy"})
    server.failures = [busy]
    begin = time.monotonic()
    with pytest.raises(ClusterUnavailable):
        server.api(patience=0.3).get("/api/v1/nodes/node-a")
    assert time.monotonic() - begin < 0.9
    server.failures = [busy]
    begin = time.monotonic()
    nodes = official.client.CoreV1Api(official.client.ApiClient(official.client.Configuration(host=server.url)))
    nodes.read_node("node-a", _request_timeout=0.5)
    assert time.monotonic() - begin > 0.9


def test_only_ours_reads_no_answer_without_end(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "MAX_ANSWER_BYTES", 1 << 16)
    server.put("/api/v1/nodes/large", {"metadata": {"name": "large", "annotations": {"note": "x" * (1 << 20)}}})
    with pytest.raises(ClusterUnavailable, match="exceeds 65536 bytes"):
        server.api(patience=0).get("/api/v1/nodes/large")
    nodes = official.client.CoreV1Api(official.client.ApiClient(official.client.Configuration(host=server.url)))
    assert len(nodes.read_node("large", _request_timeout=SECONDS).metadata.annotations["note"]) == 1 << 20


def test_only_ours_ends_a_program_that_hangs(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_credentials, "PLUGIN_SECONDS", 0.2)
    config = cluster.kubeconfig(user=official_plugin(tmp_path, {"token": "t"}))
    program = (tmp_path / "login").read_text()
    (tmp_path / "login").write_text(program.replace("import os,", "import time; time.sleep(1); import os,"))
    with pytest.raises(InvalidArgument, match="timed out after"):
        ask_ours(config)
    begin = time.monotonic()
    ask_official(config)
    assert time.monotonic() - begin > 1
    assert cluster.presented() == [("Bearer t", None)]


# What only ours does: following a collection of custom resources.


def test_only_our_informer_reads_custom_resources(script: ScriptedApiServer) -> None:
    script.lists = [[{"items": [thing("a", 1)]}]]
    errors: list[Exception] = []
    has_failed = threading.Event()
    informer = official.informer.SharedInformer(
        lambda **options: custom_objects(script.url).list_cluster_custom_object("x", "v1", "things", **options)
    )

    def fail(error: Exception) -> None:
        errors.append(error)
        has_failed.set()

    informer.add_event_handler("ERROR", fail)
    informer.start()
    try:
        assert has_failed.wait(SECONDS)
    finally:
        informer.stop()
    assert "not iterable" in str(errors[0])
    assert not script.watch_queries


def test_only_our_informer_reads_in_pages_asks_for_bookmarks_and_notices_silence() -> None:
    asked: list[dict[str, Any]] = []
    is_watched = threading.Event()

    def read(**options: Any) -> Any:
        asked.append(options)
        if "watch" in options:
            is_watched.set()
            raise official.client.exceptions.ApiException(status=500)
        return official.client.V1NodeList(items=[], metadata=official.client.V1ListMeta(resource_version="10"))

    informer = official.informer.SharedInformer(read)
    informer.start()
    try:
        assert is_watched.wait(SECONDS)
    finally:
        informer.stop()
    listed, watched = asked[:2]
    assert listed == {}, "neither a limit nor a timeout"
    assert watched == {"resource_version": "10", "watch": True, "_preload_content": False}


def test_only_our_leader_hands_over_at_once() -> None:
    from kubernetes.leaderelection.leaderelection import LeaderElection

    assert not [name for name in dir(LeaderElection) if "release" in name or "stop" in name]


def test_only_ours_has_an_informer_beside_a_server_that_uses_asyncio() -> None:
    import kubernetes.aio

    parts = {module.name for module in pkgutil.iter_modules(kubernetes.aio.__path__)}
    assert {"client", "config"} <= parts
    assert "informer" not in parts


# What each costs.


@pytest.mark.slow
def test_the_official_client_needs_several_times_the_memory() -> None:
    def resident(modules: str) -> int:
        program = f"import {modules}; print(next(line for line in open('/proc/self/status') if 'VmRSS' in line))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
        return int(done.stdout.split()[1]) >> 10

    ours = resident("entrepot_operator.kubernetes.api, entrepot_operator.kubernetes.kubeconfig")
    assert ours < 40
    assert resident("kubernetes.client, kubernetes.config") > 2 * ours
