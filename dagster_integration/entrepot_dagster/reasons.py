"""Why a step failed, as Dagster's own ``Failure``: shown in the UI, not retried, and read by whoever re-executes.

A lost input that only other steps bring back, or that the policy gives up on, is not mended by running the reader once
more, so the step's own retry policy is passed over.
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
    """What a step that failed needs.

    Attributes:
        keys: of the values that it missed.
        rule: of the policy that has tasks run again, as file and line.
        reruns: each task, and the objects because of which it has to run.
    """

    keys: tuple[str, ...]
    rule: str
    reruns: tuple[tuple[Task, tuple[ObjectRef, ...]], ...]


def rerun_needed(needed: RerunNeeded) -> Failure:
    """The failure of a step whose input comes back when other steps have run again."""
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
    """The failure of a step whose input is lost for good, by the policy."""
    return Failure(str(error), allow_retries=False)


def wanted_of(failures: Iterable[DagsterEvent]) -> list[Wanted]:
    """What the failed steps of a run need, of those that said so.

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
    """An object as metadata have it."""
    return [ref.session, str(ref.id), ref.key, ref.instance, ref.generation]


def ref_in(said: Sequence[Any]) -> ObjectRef:
    """Read what :func:`ref_out` made."""
    session, oid, key, instance, generation = said
    return ObjectRef(str(session), ObjectID(oid), str(key), str(instance), int(generation))
