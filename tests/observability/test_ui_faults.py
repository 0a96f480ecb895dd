"""Events as they come; a store that spills, dies, hangs, comes back or is another one while it is looked at."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import entrepot
import httpx
import numpy as np
import pytest
from suspension import suspend

Wait = Callable[..., None]


class Listener:
    """Reads server-sent events in a thread.

    Attributes:
        happened: the events of the store.
        ticks: what each tick said.
    """

    def __init__(self, client: httpx.Client, last: int = 0) -> None:
        self.happened: list[dict[str, Any]] = []
        self.ticks: list[dict[str, Any]] = []
        self._client = client
        self._last = last
        self._ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def kinds(self) -> list[str]:
        """What happened, in order."""
        return [event["kind"] for event in self.happened]

    def end(self) -> None:
        """Stop at the next tick."""
        self._ended = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        headers = {"last-event-id": str(self._last)}
        with self._client.stream("GET", "/api/events/stream", headers=headers, timeout=60) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            kind = ""
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    (self.happened if kind == "happened" else self.ticks).append(json.loads(value))
                if self._ended:
                    return


@contextmanager
def listening(client: httpx.Client, last: int = 0) -> Iterator[Listener]:
    """Events of the page, until the end of the block."""
    listener = Listener(client, last)
    try:
        yield listener
    finally:
        listener.end()


def state_of(client: httpx.Client) -> str:
    """Whether the store is there, as the page says it."""
    return str(client.get("/api/overview").json()["state"])


def test_spilling_and_reloading_are_events(
    new_daemon: Callable[..., Any], new_page: Any, tmp_path: Path, wait_until: Wait
) -> None:
    daemon = new_daemon("256MiB", "--spill-path", str(tmp_path / "spill"))
    with (
        entrepot.connect(daemon.address) as store,
        new_page(daemon.address) as server,
        server.logged_in() as client,
        listening(client) as events,
    ):
        wait_until(lambda: "connected" in events.kinds(), "the store to be found")
        oid = store.put(np.ones(1_000_000), name="big")
        assert client.post("/api/actions/evict", json={"ids": [str(oid)]}).json()["done"] == [str(oid)]
        wait_until(lambda: {"spilled", "evicted"} <= set(events.kinds()), "the eviction")
        wait_until(lambda: store.info(oid).state == "spilled", "the object to be on disk")
        listed = {"search": str(oid)}
        rows: list[dict[str, Any]] = []

        def is_spilled() -> bool:
            rows[:] = client.get("/api/objects", params=listed).json()["rows"]
            return [row["state"] for row in rows] == ["spilled"]

        wait_until(is_spilled, "the table to say so")
        preview = client.get(f"/api/objects/{oid}/preview").json()
        assert preview["loadable"]
        assert store.info(oid).state == "spilled"  # a look alone brings nothing back
        preview = client.get(f"/api/objects/{oid}/preview", params={"load": 1}).json()
        assert preview["rows"][0] == ["1.0"]
        wait_until(lambda: "reloaded" in events.kinds(), "the reload")
        numbers = [event["number"] for event in events.happened]
        assert numbers == sorted(set(numbers))
        with listening(client, last=numbers[0]) as later:
            wait_until(lambda: bool(later.ticks), "a tick")
            assert [event["number"] for event in later.happened][: len(numbers) - 1] == numbers[1:]


def test_a_killed_daemon_is_a_failover(daemon: Any, new_page: Any, wait_until: Wait) -> None:
    with entrepot.connect(daemon.address) as store, new_page(daemon.address) as server, server.logged_in() as client:
        oid = store.put(b"kept", name="kept")
        with listening(client) as events:
            wait_until(lambda: state_of(client) == "live", "the store to be found")
            os.kill(store.status()["pid"], signal.SIGKILL)
            wait_until(lambda: "failover" in events.kinds(), "the failover")
        wait_until(lambda: state_of(client) == "live", "the next daemon")
        assert client.get(f"/api/objects/{oid}").json()["names"] == ["kept"]


def test_a_store_that_dies_comes_back_as_another(daemon: Any, new_page: Any, wait_until: Wait) -> None:
    with new_page(daemon.address) as server, server.logged_in() as client, listening(client) as events:
        wait_until(lambda: state_of(client) == "live", "the store to be found")
        with entrepot.connect(daemon.address) as store:
            oid = store.put(b"gone", name="gone")
            wait_until(lambda: client.get("/api/objects").json()["total"] == 1, "the object to be listed")
            daemon.kill(store)
        wait_until(lambda: state_of(client) == "lost", "the page to notice")
        overview = client.get("/api/overview").json()
        assert overview["reason"]
        assert overview["status"]["objects"] == 1  # what was last known
        answer = client.get(f"/api/objects/{oid}")
        assert answer.status_code == 503
        assert answer.json()["error"]
        assert client.post("/api/actions/delete", json={"ids": [str(oid)]}).status_code == 503
        daemon.start()
        wait_until(lambda: state_of(client) == "live", "the page to find the next store")
        wait_until(lambda: {"lost", "replaced"} <= set(events.kinds()), "the events")
        wait_until(lambda: client.get("/api/objects").json()["total"] == 0, "the objects of the next store")


def test_without_a_store_the_page_waits_for_one(tmp_path: Path, new_page: Any) -> None:
    with new_page(f"unix://{tmp_path}/nothing.sock") as server, server.logged_in() as client:
        overview = client.get("/api/overview").json()
        assert (overview["state"], overview["status"]) == ("connecting", None)
        assert client.get("/api/objects").json()["rows"] == []


@pytest.mark.exhaustive
def test_a_stopped_store_is_said_to_be_lost(daemon: Any, new_page: Any, wait_until: Wait) -> None:
    with entrepot.connect(daemon.address) as store:
        status = store.status()
    with new_page(daemon.address) as server, server.logged_in() as client:
        wait_until(lambda: state_of(client) == "live", "the store to be found")
        suspend(status["keeper_pid"])
        suspend(status["pid"])
        try:
            wait_until(lambda: state_of(client) == "lost", "the page to notice")
            assert client.get("/").status_code == 200
        finally:
            os.kill(status["pid"], signal.SIGCONT)
            os.kill(status["keeper_pid"], signal.SIGCONT)
        wait_until(lambda: state_of(client) == "live", "the store to be found again")


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_two_hundred_thousand_objects_and_no_more_are_listed(
    new_daemon: Callable[..., Any], new_page: Any, wait_until: Wait
) -> None:
    daemon = new_daemon("1GiB")
    with entrepot.connect(daemon.address) as store:
        for _ in range(21):
            store.put_many([b""] * 10_000)
    with new_page(daemon.address) as server, server.logged_in() as client:
        page: dict[str, Any] = {}

        def is_listed() -> bool:
            page.update(client.get("/api/objects").json())
            return bool(page["total"])

        wait_until(is_listed, "the objects to be listed")
        assert (page["total"], page["truncated"]) == (200_000, True)
