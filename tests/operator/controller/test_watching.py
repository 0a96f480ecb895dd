"""Watching a collection: a scripted server produces on demand what a real one rarely does."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from entrepot.errors import AccessDenied, EntrepotError, VersionMismatch
from entrepot_io.cluster.access import Access
from entrepot_io.cluster.api import Api
from entrepot_io.cluster.errors import ClusterUnavailable
from entrepot_operator.watching import Source, Watcher

Event = tuple[str, dict[str, Any]]


def thing(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class Script:
    """A server that answers lists and watches from a script, in order, and then keeps watches open.

    Attributes:
        lists: pages of each list, or a status; the last entry is repeated.
        watches: events of each watch, or a status; watches beyond the last entry are silent.
        asked: the query of each watch.
    """

    def __init__(self) -> None:
        self.lists: list[list[dict[str, Any]] | int] = []
        self.watches: list[list[Event] | int] = []
        self.asked: list[dict[str, str]] = []
        self.listed = 0
        self._ended = threading.Event()
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
                if "things" not in self.path:
                    self._say(404, {"kind": "Status", "message": "not found"})
                elif "watch" in query:
                    script.asked.append(query)
                    self._watch(script.watches.pop(0) if script.watches else None)
                else:
                    self._list(query)

            def _list(self, query: dict[str, str]) -> None:
                answer = script.lists[0]
                if isinstance(answer, int):
                    if len(script.lists) > 1:
                        script.lists.pop(0)
                    self._say(answer, {"kind": "Status", "message": "no"})
                    return
                place = int(query.get("continue", "0"))
                rest = {"continue": str(place + 1)} if place + 1 < len(answer) else {}
                if not rest:
                    script.listed += 1
                    if len(script.lists) > 1:
                        script.lists.pop(0)
                self._say(200, {**answer[place], "metadata": {"resourceVersion": "10", **rest}})

            def _watch(self, events: list[Event] | int | None) -> None:
                if isinstance(events, int):
                    self._say(events, {"kind": "Status", "code": events, "message": "no"})
                    return
                self.send_response_only(200)
                self.send_header("Connection", "close")
                self.end_headers()
                for kind, resource in events or []:
                    self.wfile.write(json.dumps({"type": kind, "object": resource}).encode() + b"\n")
                if events is None:
                    script._ended.wait(30)
                self.close_connection = True

            def _say(self, status: int, said: Any) -> None:
                body = json.dumps(said).encode()
                self.send_response_only(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def connect(self) -> Api:
        return Api(Access(f"http://127.0.0.1:{self._server.server_address[1]}"), patience=0)

    def stop(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Kept:
    """A sink that keeps the names of the resources, and records all calls."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.told: list[str] = []

    def put(self, resources: Iterable[Mapping[str, Any]]) -> None:
        self.names = {one["metadata"]["name"] for one in resources}
        self.told.append("all")

    def change(self, resource: Mapping[str, Any], *, gone: bool) -> None:
        name = resource["metadata"]["name"]
        (self.names.discard if gone else self.names.add)(name)
        self.told.append(f"{'-' if gone else '+'}{name}")


class Following:
    def __init__(self, script: Script, *, ours: bool = False) -> None:
        self.kept = Kept()
        self.said: list[EntrepotError] = []
        source = Source("things", "/apis/x/v1/things", labels="a=b", ours=ours)
        self.watcher = Watcher(source, script.connect, self.kept, lambda _, error: self.said.append(error))


@pytest.fixture
def script() -> Iterator[Script]:
    running = Script()
    yield running
    running.stop()


@pytest.fixture
def follow(script: Script) -> Iterator[Callable[..., Following]]:
    """``follow()``: start to watch the scripted collection."""
    started: list[Following] = []

    def start(**options: Any) -> Following:
        one = Following(script, **options)
        started.append(one)
        one.watcher.start()
        return one

    yield start
    for one in started:
        one.watcher.stop()
        one.watcher.join(10)
        assert not one.watcher.alive


def test_a_collection_is_read_page_by_page_and_followed(
    script: Script, follow: Callable[..., Following], wait_until: Callable[..., None]
) -> None:
    script.lists = [[{"items": [thing("a", 1)]}, {"items": [thing("b", 2)]}]]
    script.watches = [
        [
            ("ADDED", thing("c", 11)),
            ("MODIFIED", thing("a", 12)),
            ("DELETED", thing("b", 13)),
            ("BOOKMARK", {"metadata": {"resourceVersion": "20"}}),
        ]
    ]
    one = follow()
    wait_until(lambda: len(script.asked) > 1, "the second watch")
    assert one.kept.told == ["all", "+c", "+a", "-b"]
    assert one.kept.names == {"a", "c"}
    assert [each["resourceVersion"] for each in script.asked[:2]] == ["10", "20"]  # it resumes from the last version
    assert script.asked[0]["labelSelector"] == "a=b"
    assert one.watcher.synced
    assert not one.said


@pytest.mark.parametrize("how", ["status", "event"])
def test_a_version_that_is_forgotten_is_read_anew(
    script: Script, follow: Callable[..., Following], wait_until: Callable[..., None], how: str
) -> None:
    script.lists = [[{"items": [thing("a", 1)]}], [{"items": [thing("b", 2)]}]]
    expired: list[Event] = [("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})]
    script.watches = [410 if how == "status" else expired]
    one = follow()
    wait_until(lambda: one.kept.names == {"b"}, "the second list")
    assert script.listed == 2
    assert one.watcher.restarts == 1
    assert not one.said


def test_a_connection_that_breaks_is_followed_by_another(
    script: Script, follow: Callable[..., Following], wait_until: Callable[..., None]
) -> None:
    script.lists = [503, [{"items": [thing("a", 1)]}]]
    script.watches = [503, [("ERROR", {"kind": "Status", "code": 500, "message": "etcd"})], [("ADDED", thing("b", 12))]]
    one = follow()
    wait_until(lambda: "b" in one.kept.names, "what came after the breaks")
    assert script.listed == 1
    assert all(isinstance(error, ClusterUnavailable) for error in one.said)
    wait_until(lambda: one.watcher.problem is None, "the problem to be over")


def test_a_watch_that_is_not_allowed_is_a_problem_and_is_said_once(
    script: Script, follow: Callable[..., Following], wait_until: Callable[..., None]
) -> None:
    script.lists = [403]
    one = follow()
    wait_until(lambda: one.watcher.problem is not None, "the problem")
    wait_until(lambda: script.listed == 0 and len(one.said) == 1, "it to be said")
    assert isinstance(one.watcher.problem, AccessDenied)
    assert not one.watcher.synced
    assert one.watcher.connected_for() == 0


def test_a_kind_of_ours_that_is_not_there_is_named(
    script: Script, follow: Callable[..., Following], wait_until: Callable[..., None]
) -> None:
    script.lists = [404, [{"items": [thing("a", 1)]}]]
    one = follow(ours=True)
    wait_until(lambda: one.watcher.synced, "the kind to be installed meanwhile")
    assert isinstance(one.said[0], VersionMismatch)
    assert "entrepot crds | kubectl apply" in str(one.said[0])


def test_it_ends_while_a_watch_is_silent(
    script: Script, follow: Callable[..., Following], wait_until: Callable[..., None]
) -> None:
    script.lists = [[{"items": []}]]
    one = follow()
    wait_until(lambda: one.watcher.connected_for() > 0, "the watch to begin")
    one.watcher.stop()
    one.watcher.join(10)
    assert not one.watcher.alive
    assert not one.said


def test_a_watch_that_was_given_up_before_it_began_does_not_begin(script: Script) -> None:
    api = script.connect()
    api.abort()
    with pytest.raises(ClusterUnavailable, match="given up"):
        next(api.watch("/apis/x/v1/things", "10"))
    assert not script.asked
