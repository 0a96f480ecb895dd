"""Spans of what a policy does for a value that is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from entrepot import raw_objects
from entrepot_io.tracing import context, spans, switch
from entrepot_policy.recovery.planning import RerunNeeded
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

POLICY = """
version: 1
failover:
  - {on: object_lost, do: rerun_upstream}
"""
NODES = {"raw": (lambda: np.arange(20_000),), "clean": (lambda raw: raw * 2, "raw")}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Has the spans of this process; the global tracer provider, which is set once a process, stays as it is."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for module in (spans, context):
        monkeypatch.setattr(module, "tracer", lambda: provider.get_tracer("entrepot"))
    before = switch.mode()
    switch.set_mode(switch.PROVIDER)
    yield exporter
    switch.set_mode(before)
    provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def test_a_rerun_is_a_span_in_the_trace_of_its_run(
    new_orchestrator: Callable[..., Any], exporter: InMemorySpanExporter
) -> None:
    orchestrator = new_orchestrator(POLICY, NODES)
    with context.in_run(orchestrator.store):
        orchestrator.run()
        (run,) = named(exporter, "entrepot run")
        lose_all(orchestrator)
        exporter.clear()
        assert (orchestrator.value("clean") == np.arange(20_000) * 2).all()
    (rerun,) = named(exporter, "entrepot rerun")
    assert rerun.attributes is not None
    tasks = rerun.attributes["entrepot.tasks"]
    assert isinstance(tasks, tuple)
    assert [str(task).rpartition("/")[2] for task in tasks] == ["raw", "clean"]
    assert "test.yaml:4" in str(rerun.attributes["entrepot.rule"])
    begun = run.get_span_context()
    assert begun is not None
    assert rerun.parent is not None
    assert rerun.parent.span_id == begun.span_id
    within = [span.name for span in exporter.get_finished_spans() if span.parent == rerun.get_span_context()]
    assert within == ["entrepot put", "entrepot get", "entrepot put"]  # what the tasks did
    assert rerun.status.is_unset
    missed = next(span for span in named(exporter, "entrepot get") if not span.status.is_ok)
    assert missed.end_time is not None
    assert rerun.start_time is not None
    assert missed.end_time <= rerun.start_time


def test_a_request_for_a_rerun_is_a_span_that_says_so(
    new_orchestrator: Callable[..., Any], exporter: InMemorySpanExporter
) -> None:
    orchestrator = new_orchestrator(POLICY, NODES, reruns=False)
    orchestrator.run()
    lose_all(orchestrator)
    with pytest.raises(RerunNeeded):
        orchestrator.value("clean")
    (rerun,) = named(exporter, "entrepot rerun")
    assert [event.name for event in rerun.events] == ["exception"]
    assert "RerunNeeded" in str(rerun.status.description)


def lose_all(orchestrator: Any) -> None:
    for name in NODES:
        raw_objects.discard(orchestrator.store(), orchestrator.references[name].id)
