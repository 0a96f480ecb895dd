"""Events of the engine in a run's log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagster import DagsterEvent, DagsterInstance, DagsterRun
from dagster._core.events import EngineEventData

if TYPE_CHECKING:
    from dagster import MetadataValue


def report_engine_event(instance: DagsterInstance, text: str, run: DagsterRun) -> None:
    """Write a line to a run's log, from outside of the run.

    Args:
        instance: the run's instance.
        text: the line.
        run: the run.
    """
    instance.report_engine_event(text, run, EngineEventData(metadata={}))


def engine_event(step_context: Any, text: str, metadata: Mapping[str, MetadataValue[Any]]) -> DagsterEvent:
    """Return an event about a step that a step handler launches.

    Args:
        step_context: the step's context.
        text: the event's text.
        metadata: its metadata.
    """
    return DagsterEvent.engine_event(step_context, text, EngineEventData(metadata=dict(metadata)))
