"""What the page shows of a run: its lineage, and what failover policies decided."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import httpx
import pyarrow as pa
from entrepot import raw_objects
from entrepot_policy.rules.match_target import Task
from entrepot_policy.state import lineage
from entrepot_policy.state.events import EventLog, LogTail, older_file
from entrepot_policy.state.lineage import Lineage, ObjectRef

Wait = Callable[..., None]
HOSTILE = "<b>{}</b>"


def record(session: entrepot.Store, oid: Any, key: str, task: str, *inputs: ObjectRef, created: float) -> ObjectRef:
    """Store the lineage of an object, as a task that runs under a policy does."""
    ref = ObjectRef(session.session_name, entrepot.ObjectID(str(oid)), key)
    made = Lineage(ref, Task("airflow", "shop", "run", task), inputs, True, 1.5, created, type="arrow.table")
    lineage.write(session, made)
    return ref


def drawn(browser: httpx.Client, session: entrepot.Store) -> dict[str, Any]:
    """The graph of a session."""
    answer = browser.get("/api/lineage", params={"place": f"{session.scope}: {session.session_name}"})
    assert answer.status_code == 200, answer.text
    graph: dict[str, Any] = answer.json()
    return graph


def test_objects_are_drawn_right_of_what_they_were_made_from(
    browser: httpx.Client, session: entrepot.Store, wait_until: Wait
) -> None:
    table = pa.table({"n": range(50_000), "m": range(50_000)})
    orders = session.put(table, name="orders")
    clean = session.put(session.get(orders).slice(0, 40_000), name="clean")
    report = session.put(b"report" * 1000, name="report")
    gone = ObjectRef(session.session_name, entrepot.ObjectID.random(), "deleted")
    first = record(session, orders, "orders", "load", gone, created=10.0)
    second = record(session, clean, HOSTILE, "clean", first, created=20.0)
    record(session, report, "report", "report", first, second, created=30.0)
    wait_until(lambda: len(drawn(browser, session)["nodes"]) == 4, "the graph")
    graph = drawn(browser, session)
    shown = {node["label"]: node for node in graph["nodes"]}
    levels = {label: node["level"] for label, node in shown.items()}
    assert levels == {"deleted": 0, "orders": 1, HOSTILE: 2, "report": 3}
    assert shown["deleted"]["state"] == "gone"
    assert shown["orders"]["task"] == "shop/load"
    assert shown["orders"]["seconds"] == 1.5
    assert shown[HOSTILE]["nbytes"] == session.info(clean).nbytes
    inputs = {(edge["source"], edge["target"]) for edge in graph["edges"] if edge["kind"] == "input"}
    assert inputs == {
        (str(gone.id), str(orders)),
        (str(orders), str(clean)),
        (str(orders), str(report)),
        (str(clean), str(report)),
    }
    wait_until(
        lambda: any(edge["kind"] == "shared" for edge in drawn(browser, session)["edges"]), "the memory that is shared"
    )
    graph = drawn(browser, session)
    assert [edge for edge in graph["edges"] if edge["kind"] == "shared"] == [
        {"source": str(orders), "target": str(clean), "kind": "shared"}
    ]
    assert f"{session.scope}: {session.session_name}" in graph["places"]
    assert not graph["truncated"]


def test_a_record_that_cannot_be_read_is_counted(
    browser: httpx.Client, session: entrepot.Store, wait_until: Wait
) -> None:
    good = record(session, session.put(b"good"), "good", "load", created=1.0)
    bad = entrepot.ObjectID.random()
    key = lineage.record_key(bad)
    oid = entrepot.ObjectID.derive(session.scope, session.session_name, key)
    raw_objects.put_record(session, oid, b"no JSON", name=key)
    wait_until(lambda: drawn(browser, session)["unreadable"] == 1, "the damaged record")
    assert [node["id"] for node in drawn(browser, session)["nodes"]] == [str(good.id)]


def test_a_task_that_read_its_own_earlier_output_is_no_endless_loop(
    browser: httpx.Client, session: entrepot.Store, wait_until: Wait
) -> None:
    ids = [session.put(b"x"), session.put(b"y")]
    refs = [
        ObjectRef(session.session_name, entrepot.ObjectID(str(oid)), key) for oid, key in zip(ids, "xy", strict=True)
    ]
    record(session, ids[0], "x", "first", refs[1], refs[0], created=1.0)
    record(session, ids[1], "y", "second", refs[0], created=2.0)
    wait_until(lambda: len(drawn(browser, session)["edges"]) == 3, "the graph")
    assert {node["label"]: node["level"] for node in drawn(browser, session)["nodes"]} == {"x": 0, "y": 1}


def test_an_unknown_session_has_no_graph(browser: httpx.Client) -> None:
    graph = browser.get("/api/lineage", params={"place": "nobody: nothing"}).json()
    assert (graph["nodes"], graph["edges"]) == ([], [])


def test_decisions_of_policies_appear_as_they_are_made(
    module_daemon: Any, new_page: Any, tmp_path: Path, wait_until: Wait
) -> None:
    log = EventLog("shop floor", tmp_path)
    log.add("checkpoint_skipped", key="orders", rule="policy.yaml:7", text="costs 2.0 s to write, 1.0 s to make again")
    with new_page(module_daemon.address, "--events", str(tmp_path)) as server, server.logged_in() as client:
        wait_until(lambda: len(client.get("/api/policy").json()["decisions"]) == 1, "what was decided before")
        (earlier,) = client.get("/api/policy").json()["decisions"]
        assert (earlier["scope"], earlier["rule"], earlier["key"]) == ("shop floor", "policy.yaml:7", "orders")
        assert "costs 2.0 s" in earlier["text"]
        log.add("reloaded", of=Task("dagster", "job", "run", "report"), key=HOSTILE, seconds=0.25, nbytes=1 << 20)
        EventLog("other", tmp_path).add("gave_up", key="clean", text="no checkpoint")
        wait_until(lambda: len(client.get("/api/policy").json()["decisions"]) == 3, "the new ones")
        wait_until(
            lambda: {"reloaded", "gave up"} <= {each["kind"] for each in client.get("/api/events").json()["events"]},
            "the events",
        )
        events = {each["kind"]: each for each in client.get("/api/events").json()["events"]}
        assert events["reloaded"]["text"] == f"job/report {HOSTILE} in 0.250 s"
        assert not events["reloaded"]["alert"]
        assert events["gave up"]["alert"]
        assert "checkpoint skipped" not in events  # it was before the page


def test_logs_that_cannot_be_read_are_a_message(
    module_daemon: Any, new_page: Any, tmp_path: Path, wait_until: Wait
) -> None:
    (tmp_path / "scope.jsonl").mkdir()
    with new_page(module_daemon.address, "--events", str(tmp_path)) as server, server.logged_in() as client:
        wait_until(lambda: "scope.jsonl" in client.get("/api/policy").json()["problem"], "the message")
        (tmp_path / "scope.jsonl").rmdir()
        EventLog("scope", tmp_path).add("retried", key="orders")
        wait_until(lambda: not client.get("/api/policy").json()["problem"], "the next look")
        wait_until(lambda: len(client.get("/api/policy").json()["decisions"]) == 1, "the decision")


def test_the_tail_of_a_large_log_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = EventLog("tests", tmp_path, max_bytes=1 << 20)
    for number in range(200):
        log.add("retried", key=str(number))
    size = os.stat(log.path).st_size
    tail = LogTail(log.path, newest_bytes=size // 10)
    keys = [int(event.key) for event in tail.read()]
    assert keys == list(range(keys[0], 200))
    assert 15 < len(keys) < 25
    os.rename(log.path, older_file(log.path))
    log.add("retried", key="200")
    assert [event.key for event in tail.read()] == ["200"]
    assert tail.read() == []
