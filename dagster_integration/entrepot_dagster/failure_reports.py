"""Runs that failed because of the store, with or without a policy: what a step's log and a run's log say about it.

``store_failure_hook`` is for jobs. Dagster does not call hooks for a step whose process was killed;
``store_failure_sensor``, which the daemon evaluates, sees these too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster import (
    DefaultSensorStatus,
    HookContext,
    RunFailureSensorContext,
    SensorDefinition,
    SkipReason,
    failure_hook,
    run_failure_sensor,
)

from entrepot_dagster.compat.events import report_engine_event

if TYPE_CHECKING:
    from dagster import DagsterEvent

_KILLED = "ChildProcessCrashException"
_AWAY = "run 'entrepot doctor' on the machine of the step, then re-execute the run from failure"
_MODULE = "entrepot.errors"
# By the name of the error's class, which is what Dagster keeps of it.
_ADVICE = {
    "ObjectNotFound": "materialize the upstream asset, or re-execute with the step that writes the value",
    "ObjectLost": "re-execute with the step that wrote the value; a policy does it for you",
    "ObjectDropped": "give the reader the policy of the writer, or re-execute with the step that wrote the value",
    "CorruptData": "re-execute with the step that wrote the value, and check the disk of the spill folder",
    "StoreFull": "give the store more memory or disk, or delete what it holds (entrepot ls, entrepot gc); then "
    "re-execute from failure",
    "StoreUnavailable": _AWAY,
    "InstanceLost": _AWAY,
    "DirectoryUnavailable": _AWAY,
    "Timeout": "if its daemon is stopped, let it go on (kill -CONT PID); then re-execute the run from failure",
    "VersionMismatch": "use one version of entrepot in all processes",
    "BuildMismatch": "use one build of entrepot in all processes",
    "UnsupportedType": "return a type that a codec supports, or register one for it; annotate the input with a form "
    "that the value has",
    "InvalidReference": "materialize the asset again: the record in the event log is damaged",
    _KILLED: "what it had stored is still in the store: re-execute the run from failure (SIGKILL often means that "
    "memory was short: see the step's log)",
}


@dataclass(frozen=True)
class StepFailure:
    """A step that failed because of the store, or whose process was killed.

    Attributes:
        step_key: of the step.
        error: name of the error's class.
        message: of the error.
        advice: what to do.
    """

    step_key: str
    error: str
    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.step_key}: {self.error}: {self.message}. What to do: {self.advice}"


def step_failures(events: Sequence[DagsterEvent]) -> list[StepFailure]:
    """Return the failures that the store is the reason of, or a kill.

    Args:
        events: failures of steps, such as ``RunFailureSensorContext.get_step_failure_events()``.
    """
    failures: list[StepFailure] = []
    for event in events:
        for name, message in _recorded_errors(event.step_failure_data.error):
            qualified = f"{_MODULE}.{name}: "
            if name in _ADVICE and (name == _KILLED or message.startswith(qualified)):
                text = message.strip().removeprefix(qualified)
                if name == _KILLED:  # whose message is its class
                    text = "the process of the step ended before the step"
                failures.append(StepFailure(event.step_key or "", name, text, _ADVICE[name]))
                break
    return failures


@failure_hook(name="entrepot_store_failure")
def store_failure_hook(context: HookContext) -> None:
    """Say in a failed step's log what to do, if the store is the reason."""
    error = context.op_exception
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        advice = _ADVICE.get(type(error).__name__)
        if advice is not None and type(error).__module__ == _MODULE:
            context.log.error(f"entrepot: {StepFailure(context.step_key, type(error).__name__, str(error), advice)}")
            return
        error = error.__cause__ or error.__context__


def store_failure_sensor(
    on_failure: Callable[[RunFailureSensorContext, list[StepFailure]], Any] | None = None,
    *,
    name: str = "entrepot_store_failures",
    minimum_interval_seconds: int | None = None,
    monitored_jobs: Sequence[Any] | None = None,
    default_status: DefaultSensorStatus = DefaultSensorStatus.STOPPED,
) -> SensorDefinition:
    """Return a ``run_failure_sensor`` for runs that failed because of the store, or of a killed process.

    It writes what happened, and what to do, into the run's log.

    Args:
        on_failure: called as well, for a message to someone: with the sensor's context, and the failed steps.
        name: of the sensor.
        minimum_interval_seconds: interval between evaluations; None: Dagster's default.
        monitored_jobs: as for ``run_failure_sensor``; None: all of the code location.
        default_status: whether it runs from the start.
    """

    @run_failure_sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        description="Runs that failed because of Entrepot's store, or of a killed process, and what to do.",
        monitored_jobs=monitored_jobs,
        default_status=default_status,
    )
    def sensor(context: RunFailureSensorContext) -> SkipReason | None:
        failures = step_failures(context.get_step_failure_events())
        if not failures:
            return SkipReason(f"run {context.dagster_run.run_id} failed for another reason")
        for failure in failures:
            report_engine_event(context.instance, f"entrepot: {failure}", context.dagster_run)
        if on_failure is not None:
            on_failure(context, failures)
        return None

    return sensor


def _recorded_errors(error: Any) -> Iterator[tuple[str, str]]:
    """Names and messages of an error and its causes, from the outermost."""
    while error is not None:
        yield error.cls_name or "", error.message
        error = error.cause or error.context
