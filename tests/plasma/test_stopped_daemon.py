"""The store's daemon stands still, or dies after that, while Plasma clients seal: the seal waits, and nobody else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import entrepot
import pytest
from plasma_wire import WireClient
from suspension import standing_still

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
DIGEST = "digest--"
LONGER_THAN_ANY_ANSWER_SECONDS = 33.0  # a request to the daemon is given up after 30


def oid(number: int) -> str:
    return f"stopped-daemon-{number:05}"


def get(client: WireClient, number: int, timeout_ms: int) -> int:
    """The size of the object that a get returns; the largest one if it is not there in time."""
    (location,) = client.ask("Get", object_ids=[oid(number)], timeout_ms=timeout_ms)["places"]
    return int(location["data_size"])


def put(client: WireClient, number: int) -> str:
    whole = {"object_id": oid(number), "data": "here", "metadata": ""}
    return str(client.ask("CreateAndSeal", evict_if_full=True, digest=DIGEST, **whole)["error"])


# How a seal is asked for, and the reply that says that it is done.
BY_TWO_MESSAGES = ("Seal", {"object_id": oid(1), "digest": DIGEST})
BY_ONE = ("CreateAndSeal", {"object_id": oid(1), "evict_if_full": True, "data": "1234", "digest": DIGEST})
EMPTY = ("CreateAndSeal", {"object_id": oid(1), "evict_if_full": True, "data": "", "digest": DIGEST})
BATCH = (
    "CreateAndSealBatch",
    {
        "object_ids": [oid(1), oid(2)],
        "evict_if_full": True,
        "data": ["1234", "56"],
        "metadata": ["", "m"],
        "digests": [DIGEST, DIGEST],
    },
)


def begin(client: WireClient, name: str, fields: dict[str, Any]) -> None:
    """Send the request, after what it needs."""
    if name == "Seal":
        created = client.ask("Create", object_id=oid(1), evict_if_full=True, data_size=4, metadata_size=0)
        assert created["error"] == "Ok"
        os.close(client.take_descriptor())
    client.send(f"{name}Request", **fields)


@pytest.mark.parametrize("is_killed", [False, True], ids=["continued", "killed"])
@pytest.mark.parametrize("request_of", [BY_TWO_MESSAGES, BY_ONE, EMPTY, BATCH], ids=["seal", "whole", "empty", "batch"])
def test_a_seal_waits_for_the_daemon_and_nobody_else_for_the_seal(
    daemon: Any,
    new_front_end: Any,
    wait_until: Callable[..., None],
    request_of: tuple[str, dict[str, Any]],
    is_killed: bool,
) -> None:
    front_end = new_front_end(16 * MIB)
    name, fields = request_of
    with entrepot.connect(daemon.address) as store:
        pid = store.status()["pid"]
        with WireClient(front_end.socket) as writer, WireClient(front_end.socket) as other:
            assert put(other, 9) == "Ok"
            assert get(other, 9, 0) == 4
            os.close(other.take_descriptor())
            with standing_still(pid):
                begin(writer, name, fields)
                # What needs no daemon is answered: the front end's thread does not wait for that of the seal.
                assert get(other, 9, 0) == 4
                other.send("GetRequest", object_ids=[oid(1)], timeout_ms=60_000)
                if is_killed:
                    os.kill(pid, signal.SIGKILL)
            assert writer.receive(f"{name}Reply")["error"] == "Ok", front_end.log()
            places = other.receive("GetReply")["places"]
            assert [place["data_size"] for place in places] == [len(b"1234") if fields.get("data") != "" else 0]
            assert store.exists(entrepot.ObjectID(oid(1).encode()))
        # No pin is left that nobody knows of.
        assert store.delete(entrepot.ObjectID(oid(1).encode()))
        wait_until(lambda: store.status()["pinned_bytes"] == 0, "the pins of the clients that left to end")


def test_another_object_of_this_id_that_was_sealed_meanwhile_makes_it_fail(daemon: Any, new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with entrepot.connect(daemon.address) as store, WireClient(front_end.socket) as writer:
        pid = store.status()["pid"]
        begin(writer, *BY_TWO_MESSAGES)
        assert writer.receive("SealReply")["error"] == "Ok"
        assert store.delete(entrepot.ObjectID(oid(1).encode()))
        created = writer.ask("Create", object_id=oid(2), evict_if_full=True, data_size=4, metadata_size=0)
        assert created["error"] == "Ok"
        store.put(b"other", id=entrepot.ObjectID(oid(2).encode()))
        with standing_still(pid):
            writer.send("SealRequest", object_id=oid(2), digest=DIGEST)
            time.sleep(1.5)  # until the front end waits for it in another thread; the outcome is the same without
        assert writer.receive("SealReply")["error"] == "ObjectExists"
        assert store.get(entrepot.ObjectID(oid(2).encode())) == b"other"


def test_a_writer_that_leaves_meanwhile_leaves_its_object_to_the_store(
    daemon: Any, new_front_end: Any, wait_until: Callable[..., None]
) -> None:
    front_end = new_front_end(16 * MIB)
    with entrepot.connect(daemon.address) as store:
        pid = store.status()["pid"]
        with WireClient(front_end.socket) as other:
            assert put(other, 9) == "Ok"  # memory is at hand from now on
            with WireClient(front_end.socket) as writer, standing_still(pid):
                begin(writer, *BY_ONE)
                assert "capacity" in other.ask("DebugString")["text"]  # it has read what came before
                writer.socket.close()
            assert get(other, 1, 60_000) == len(b"1234")
        wait_until(lambda: store.status()["pinned_bytes"] == 0, "the pins of the clients that left to end")


@pytest.mark.exhaustive
def test_a_seal_waits_longer_than_any_answer(daemon: Any, new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with entrepot.connect(daemon.address) as store, WireClient(front_end.socket) as writer:
        assert put(writer, 9) == "Ok"  # memory is at hand from now on
        with standing_still(store.status()["pid"]):
            begin(writer, *BY_TWO_MESSAGES)
            time.sleep(LONGER_THAN_ANY_ANSWER_SECONDS)
        assert writer.receive("SealReply")["error"] == "Ok"
        assert get(writer, 1, 0) == 4


def test_the_front_end_ends_while_a_seal_waits(daemon: Any, new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with (
        entrepot.connect(daemon.address) as store,
        WireClient(front_end.socket) as writer,
        WireClient(front_end.socket) as other,
    ):
        assert put(other, 9) == "Ok"  # memory is at hand from now on
        with standing_still(store.status()["pid"]):
            begin(writer, *BY_ONE)
            assert "capacity" in other.ask("DebugString")["text"]
            assert front_end.stop() == 0
        assert writer.is_cut_off()
