"""Reasons for step failures, as Dagster's own ``Failure``: shown in the UI, not retried, and read for re-execution.

If a lost input can be restored only by other steps, or if the policy gives up on it, running the reader again does not
help. So these failures bypass the step's own retry policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagster import DagsterEvent, Failure, JsonMetadataValue, MetadataValue
from entrepot.errors import EntrepotError
from entrepot.ids import ObjectID
from entrepot_io.policy import ObjectRef, RerunNeeded, Task

RERUN = "entrepot/rerun"
RULE = "entrepot/rule"


@dataclass(frozen=True)
class Wanted:
    """What a failed step needs.

    Attributes:
        keys: keys of the values that it missed.
        rule: the policy rule that reruns tasks, as file and line.
        reruns: each task to rerun, and the objects that it must recompute.
    """

    keys: tuple[str, ...]
    rule: str
    reruns: tuple[tuple[Task, tuple[ObjectRef, ...]], ...]


def rerun_needed(needed: RerunNeeded) -> Failure:
    """Return the failure of a step whose input can be recomputed by rerunning other steps."""
    plan = needed.plan
    said = {
        "keys": [ref.key or str(ref.id) for ref in plan.wanted],
        "rule": needed.rule,
        "reruns": [
            {
                "task": [one.task.host, one.task.pipeline, one.task.run, one.task.name],
                "makes": [ref_out(ref) for ref in one.makes],
            }
            for one in plan.reruns
        ],
    }
    return Failure(
        f"{needed}. Re-execute these steps and this one: the sensor of entrepot_dagster.policy_sensors() does, and "
        "'python -m entrepot_dagster rerun RUN_ID'",
        metadata={RERUN: JsonMetadataValue(said), RULE: MetadataValue.text(needed.rule)},
        allow_retries=False,
    )


def gave_up(error: EntrepotError) -> Failure:
    """Return the failure of a step whose input the policy has given up on."""
    return Failure(str(error), allow_retries=False)


def wanted_of(failures: Iterable[DagsterEvent]) -> list[Wanted]:
    """Return what a run's failed steps need, for those that recorded it.

    Args:
        failures: their STEP_FAILURE events.
    """
    found = []
    for event in failures:
        data = event.step_failure_data.user_failure_data
        entry = None if data is None else data.metadata.get(RERUN)
        if isinstance(entry, JsonMetadataValue) and isinstance(entry.data, Mapping):
            found.append(_wanted(entry.data))
    return found


def _wanted(said: Mapping[str, Any]) -> Wanted:
    reruns = []
    for one in said["reruns"]:
        host, pipeline, run, name = map(str, one["task"])
        reruns.append((Task(host, pipeline, run, name), tuple(map(ref_in, one["makes"]))))
    return Wanted(tuple(map(str, said["keys"])), str(said["rule"]), tuple(reruns))


def ref_out(ref: ObjectRef) -> list[Any]:
    """Convert an object reference to its form in metadata."""
    return [ref.session, str(ref.id), ref.key, ref.instance, ref.generation]


def ref_in(said: Sequence[Any]) -> ObjectRef:
    """Parse what :func:`ref_out` returned."""
    session, oid, key, instance, generation = said
    return ObjectRef(str(session), ObjectID(oid), str(key), str(instance), int(generation))
