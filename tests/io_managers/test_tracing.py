"""Spans of values over OTLP: from process to process, within an orchestrator's own span, from disk; and without any."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.errors import InvalidArgument, InvalidReference
from entrepot.ids import ObjectID
from entrepot_io.connections import close_all
from entrepot_io.reference import Reference
from entrepot_io.tracing import switch
from otlp_receiver import Receiver, Span, receiving

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PRELUDE = """
import json, os, sys
from entrepot_io.connections import session_store
from entrepot_io.reference import Reference
from entrepot_io.values import delete_by_key, get_by_key, get_value, put_value

def run_store(name="airflow/etl/run-1"):
    return session_store(None, "tests", name, 3600)

def received():
    return Reference.parse(json.loads(sys.argv[1]))
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A collector."""
    with receiving() as receiver:
        yield receiver


class Processes:
    """Runs programs in processes of their own, as an orchestrator does, with traces."""

    def __init__(self, address: str, receiver: Receiver) -> None:
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("OTEL_")},
            "ENTREPOT_ADDRESS": address,
            "ENTREPOT_TRACES": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        }

    def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(program), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def processes(daemon: Any, receiver: Receiver) -> Processes:
    """Programs that use the test's store and collector."""
    return Processes(daemon.address, receiver)


PUT = """
import json
print(json.dumps(put_value(run_store(), "make/return_value", b"x" * 5000).to_dict()))
os._exit(sys.stdout.flush() or 0)  # as Airflow's task processes end
"""
GET_AND_PUT = """
assert get_value(received()) == b"x" * 5000
put_value(run_store(), "use/return_value", [1, 2, 3])
"""


def only(spans: list[Span]) -> Span:
    """The one span of a list."""
    (span,) = spans
    return span


def test_a_trace_follows_a_value_from_process_to_process(processes: Processes, receiver: Receiver) -> None:
    reference = processes.run(PUT)
    processes.run(GET_AND_PUT, reference)
    run = only(receiver.spans("entrepot run"))
    made, used = receiver.spans("entrepot put")
    get = only(receiver.spans("entrepot get"))
    assert {span.trace for span in receiver.spans()} == {run.trace}
    assert (run.parent, made.parent, get.parent, used.parent) == ("", run.id, made.id, run.id)
    assert f"-{made.trace}-{made.id}-" in reference
    assert made.attributes["entrepot.bytes"] >= 5000
    assert (made.attributes["entrepot.type"], made.attributes["entrepot.session"]) == ("bytes", "airflow/etl/run-1")
    assert get.attributes["entrepot.id"] == made.attributes["entrepot.id"]
    assert {span.service for span in receiver.spans()} == {"entrepot"}


def test_a_value_that_is_read_by_its_key_has_its_put_as_parent(processes: Processes, receiver: Receiver) -> None:
    processes.run('put_value(run_store("kedro/run-1"), "dataset:x", [1.5])')
    processes.run('assert get_by_key(run_store("kedro/run-1"), "dataset:x") == [1.5]')
    assert only(receiver.spans("entrepot get")).parent == only(receiver.spans("entrepot put")).id
    processes.run('assert delete_by_key(run_store("kedro/run-1"), "dataset:x")')
    with entrepot.connect(processes.environment["ENTREPOT_ADDRESS"], scope="tests") as store:
        left = store.session("kedro/run-1").list()
    assert len(left) == 1, "only the run's own record is left"


def test_a_span_of_the_orchestrator_is_continued(processes: Processes, receiver: Receiver) -> None:
    reference = processes.run(PUT)
    processes.environment["ENTREPOT_TRACES"] = "provider"
    own_provider = """
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    with trace.get_tracer("orchestrator").start_as_current_span("task"):
        get_value(received())
        put_value(run_store(), "use/return_value", 1)
    """
    processes.run(own_provider, reference)
    task = only(receiver.spans("task"))
    made, used = receiver.spans("entrepot put")
    get = only(receiver.spans("entrepot get"))
    assert (get.parent, used.parent) == (task.id, task.id)
    assert get.links == (made.id,)
    assert task.trace != made.trace


def test_a_reload_is_a_span_within_the_get(
    new_daemon: Callable[..., Any], receiver: Receiver, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    daemon = new_daemon("256MiB", "--spill-path", str(tmp_path / "spill"))
    processes = Processes(daemon.address, receiver)
    text = processes.run(PUT.replace("5000", "8_000_000"))
    with entrepot.connect(daemon.address) as store:
        oid = text.partition('"id": "')[2][:40]

        def is_spilled() -> bool:
            store.evict(oid)
            return store.info(oid).state == "spilled"

        wait_until(is_spilled, "the value to be spilled")
    processes.run("assert len(get_value(received())) == 8_000_000", text)
    reload = only(receiver.spans("entrepot reload"))
    assert reload.parent == only(receiver.spans("entrepot get")).id
    assert reload.attributes["entrepot.bytes"] >= 8_000_000
    processes.run("assert len(get_value(received())) == 8_000_000", text)
    assert len(receiver.spans("entrepot get")) == 2
    assert len(receiver.spans("entrepot reload")) == 1, "the second get found it in memory"


def test_a_get_that_fails_is_a_failed_span(processes: Processes, receiver: Receiver) -> None:
    reference = processes.run(PUT)
    lost = """
    from entrepot.errors import ObjectLost
    from entrepot_io.values import delete_value
    delete_value(received())
    try:
        get_value(received())
    except ObjectLost:
        print("lost")
    """
    assert processes.run(lost, reference) == "lost\n"
    assert only(receiver.spans("entrepot get")).failed
    assert not only(receiver.spans("entrepot put")).failed


def test_processes_that_begin_a_run_together_have_one_trace(processes: Processes, receiver: Receiver) -> None:
    forks = """
    import multiprocessing
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(4)

    def task(number):
        store = run_store()
        ready.wait(30)
        put_value(store, f"task-{number}/return_value", number)

    children = [context.Process(target=task, args=(number,)) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    """
    processes.run(forks)
    assert len(receiver.spans("entrepot put")) == 4
    assert {span.parent for span in receiver.spans("entrepot put")} == {only(receiver.spans("entrepot run")).id}


def test_a_collector_that_is_away_costs_no_task_its_result(processes: Processes, receiver: Receiver) -> None:
    processes.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
    processes.environment["OTEL_EXPORTER_OTLP_TIMEOUT"] = "0.2"
    processes.run(GET_AND_PUT, processes.run(PUT))
    assert receiver.spans() == []


def test_without_traces_nothing_of_opentelemetry_is_imported(processes: Processes, receiver: Receiver) -> None:
    del processes.environment["ENTREPOT_TRACES"]
    off = """
    reference = put_value(run_store(), "make/return_value", b"x" * 5000)
    assert get_value(reference) == get_by_key(run_store(), "make/return_value") == b"x" * 5000
    assert "traceparent" not in reference.to_dict()
    print([name for name in sys.modules if name.startswith("opentelemetry")])
    """
    assert processes.run(off) == "[]\n"
    assert receiver.spans() == []


def test_a_mode_that_does_not_exist_is_refused(processes: Processes) -> None:
    processes.environment["ENTREPOT_TRACES"] = "yes"
    refused = """
    from entrepot.errors import InvalidArgument
    try:
        put_value(run_store(), "x", 1)
    except InvalidArgument as error:
        print(error)
    """
    assert processes.run(refused) == "ENTREPOT_TRACES must be one of off, provider, otlp, not 'yes' [E301]\n"
    with pytest.raises(InvalidArgument, match="must be one of off, provider, otlp, not 'on'"):
        switch.set_mode("on")


def test_references_keep_and_check_the_context() -> None:
    reference = Reference("tests", "", ObjectID(bytes(20)), 1, "0" * 32, "host", "int", 5)
    assert "traceparent" not in reference.to_dict()
    traced = replace(reference, traceparent=TRACEPARENT)
    assert Reference.parse(traced.to_dict()) == traced
    for damaged in (7, "", TRACEPARENT[:-1], TRACEPARENT.upper()):
        with pytest.raises(InvalidReference, match="field 'traceparent'"):
            Reference.parse({**traced.to_dict(), "traceparent": damaged})


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    yield
    close_all()
