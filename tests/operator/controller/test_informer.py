"""Watching a collection: a scripted server produces on demand what a real one rarely does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
from entrepot.errors import AccessDenied, EntrepotError, VersionMismatch
from entrepot_operator.kubernetes.errors import ClusterUnavailable
from entrepot_operator.kubernetes.informer import Informer, WatchTarget
from scripted_api import Event, ScriptedApiServer, thing


class RecordingSink:
    """A sink that keeps the names of the resources, and records all calls."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.calls: list[str] = []

    def put(self, resources: Iterable[Mapping[str, Any]]) -> None:
        self.names = {resource["metadata"]["name"] for resource in resources}
        self.calls.append("all")

    def change(self, resource: Mapping[str, Any], *, gone: bool) -> None:
        name = resource["metadata"]["name"]
        (self.names.discard if gone else self.names.add)(name)
        self.calls.append(f"{'-' if gone else '+'}{name}")


class WatchedCollection:
    def __init__(self, script: ScriptedApiServer, *, custom_resource: bool = False) -> None:
        self.sink = RecordingSink()
        self.errors: list[EntrepotError] = []
        target = WatchTarget("things", "/apis/x/v1/things", labels="a=b", custom_resource=custom_resource)
        self.informer = Informer(target, script.connect, self.sink, lambda _, error: self.errors.append(error))


@pytest.fixture
def script() -> Iterator[ScriptedApiServer]:
    running = ScriptedApiServer()
    yield running
    running.stop()


@pytest.fixture
def follow(script: ScriptedApiServer) -> Iterator[Callable[..., WatchedCollection]]:
    """``follow()``: start to watch the scripted collection."""
    started: list[WatchedCollection] = []

    def start(**options: Any) -> WatchedCollection:
        item = WatchedCollection(script, **options)
        started.append(item)
        item.informer.start()
        return item

    yield start
    for item in started:
        item.informer.stop()
        item.informer.join(10)
        assert not item.informer.alive


def test_a_collection_is_read_page_by_page_and_followed(
    script: ScriptedApiServer, follow: Callable[..., WatchedCollection], wait_until: Callable[..., None]
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
    following = follow()
    wait_until(lambda: len(script.watch_queries) > 1, "the second watch")
    assert following.sink.calls == ["all", "+c", "+a", "-b"]
    assert following.sink.names == {"a", "c"}
    # It resumes from the last version.
    assert [query["resourceVersion"] for query in script.watch_queries[:2]] == ["10", "20"]
    assert script.watch_queries[0]["labelSelector"] == "a=b"
    assert following.informer.synced
    assert not following.errors


@pytest.mark.parametrize("how", ["status", "event"])
def test_a_version_that_is_forgotten_is_read_anew(
    script: ScriptedApiServer, follow: Callable[..., WatchedCollection], wait_until: Callable[..., None], how: str
) -> None:
    script.lists = [[{"items": [thing("a", 1)]}], [{"items": [thing("b", 2)]}]]
    expired: list[Event] = [("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})]
    script.watches = [410 if how == "status" else expired]
    following = follow()
    wait_until(lambda: following.sink.names == {"b"}, "the second list")
    assert script.listed == 2
    assert following.informer.restarts == 1
    assert not following.errors


def test_a_connection_that_breaks_is_followed_by_another(
    script: ScriptedApiServer, follow: Callable[..., WatchedCollection], wait_until: Callable[..., None]
) -> None:
    script.lists = [503, [{"items": [thing("a", 1)]}]]
    script.watches = [503, [("ERROR", {"kind": "Status", "code": 500, "message": "etcd"})], [("ADDED", thing("b", 12))]]
    following = follow()
    wait_until(lambda: "b" in following.sink.names, "what came after the breaks")
    assert script.listed == 1
    assert all(isinstance(error, ClusterUnavailable) for error in following.errors)
    wait_until(lambda: following.informer.problem is None, "the problem to be over")


def test_a_watch_that_falls_silent_is_resumed(
    script: ScriptedApiServer,
    follow: Callable[..., WatchedCollection],
    wait_until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("entrepot_operator.kubernetes.api.SILENCE_SECONDS", 0.2)
    script.lists = [[{"items": [thing("a", 1)]}]]
    following = follow()  # the scripted server says nothing at all in a watch without events
    wait_until(lambda: len(script.watch_queries) > 1, "the second watch")
    assert [query["resourceVersion"] for query in script.watch_queries[:2]] == ["10", "10"]
    assert all(query["allowWatchBookmarks"] == "true" for query in script.watch_queries)
    assert script.listed == 1
    assert [query["limit"] for query in script.list_queries] == ["500"]
    assert isinstance(following.errors[0], ClusterUnavailable)
    assert "timed out" in str(following.errors[0])


def test_a_forbidden_watch_is_reported_once(
    script: ScriptedApiServer, follow: Callable[..., WatchedCollection], wait_until: Callable[..., None]
) -> None:
    script.lists = [403]
    following = follow()
    wait_until(lambda: following.informer.problem is not None, "the problem")
    wait_until(lambda: script.listed == 0 and len(following.errors) == 1, "it to be reported")
    assert isinstance(following.informer.problem, AccessDenied)
    assert not following.informer.synced
    assert following.informer.connected_for() == 0


def test_a_kind_of_ours_that_is_not_there_is_named(
    script: ScriptedApiServer, follow: Callable[..., WatchedCollection], wait_until: Callable[..., None]
) -> None:
    script.lists = [404, [{"items": [thing("a", 1)]}]]
    following = follow(custom_resource=True)
    wait_until(lambda: following.informer.synced, "the kind to be installed meanwhile")
    assert isinstance(following.errors[0], VersionMismatch)
    assert "entrepot crds | kubectl apply" in str(following.errors[0])


def test_it_ends_while_a_watch_is_silent(
    script: ScriptedApiServer, follow: Callable[..., WatchedCollection], wait_until: Callable[..., None]
) -> None:
    script.lists = [[{"items": []}]]
    following = follow()
    wait_until(lambda: following.informer.connected_for() > 0, "the watch to begin")
    following.informer.stop()
    following.informer.join(10)
    assert not following.informer.alive
    assert not following.errors


def test_a_watch_that_was_given_up_before_it_began_does_not_begin(script: ScriptedApiServer) -> None:
    api = script.connect()
    api.abort()
    with pytest.raises(ClusterUnavailable, match="aborted before it started"):
        next(api.watch("/apis/x/v1/things", "10"))
    assert not script.watch_queries
