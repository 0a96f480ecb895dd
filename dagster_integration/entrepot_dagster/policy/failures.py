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
from entrepot_policy import ObjectRef, RerunNeeded, Task

RERUN = "entrepot/rerun"
RULE = "entrepot/rule"


@dataclass(frozen=True)
class MissingInputs:
    """Inputs that a failed step is missing.

    Attributes:
        keys: keys of the values that it missed.
        rule: the policy rule that reruns tasks, as file and line.
        reruns: each task to rerun, and the objects that it must recompute.
    """

    keys: tuple[str, ...]
    rule: str
    reruns: tuple[tuple[Task, tuple[ObjectRef, ...]], ...]


def rerun_needed_failure(error: RerunNeeded) -> Failure:
    """Return the failure of a step whose input can be recomputed by rerunning other steps."""
    plan = error.plan
    payload = {
        "keys": [ref.key or str(ref.id) for ref in plan.requested],
        "rule": error.rule,
        "reruns": [
            {
                "task": [rerun.task.orchestrator, rerun.task.pipeline, rerun.task.run, rerun.task.name],
                "makes": [encode_ref(ref) for ref in rerun.outputs],
            }
            for rerun in plan.reruns
        ],
    }
    return Failure(
        f"{error}. Re-execute these steps and this one: with the sensor of entrepot_dagster.policy_sensors(), or "
        "with 'python -m entrepot_dagster rerun RUN_ID'",
        metadata={RERUN: JsonMetadataValue(payload), RULE: MetadataValue.text(error.rule)},
        allow_retries=False,
    )


def gave_up_failure(error: EntrepotError) -> Failure:
    """Return the failure of a step whose input the policy has given up on."""
    return Failure(str(error), allow_retries=False)


def missing_inputs_of(failures: Iterable[DagsterEvent]) -> list[MissingInputs]:
    """Return what a run's failed steps need, for those that recorded it.

    Args:
        failures: their STEP_FAILURE events.
    """
    missing = []
    for event in failures:
        data = event.step_failure_data.user_failure_data
        entry = None if data is None else data.metadata.get(RERUN)
        if isinstance(entry, JsonMetadataValue) and isinstance(entry.data, Mapping):
            missing.append(_parse_missing_inputs(entry.data))
    return missing


def _parse_missing_inputs(payload: Mapping[str, Any]) -> MissingInputs:
    reruns = []
    for entry in payload["reruns"]:
        orchestrator, pipeline, run, name = map(str, entry["task"])
        reruns.append((Task(orchestrator, pipeline, run, name), tuple(map(decode_ref, entry["makes"]))))
    return MissingInputs(tuple(map(str, payload["keys"])), str(payload["rule"]), tuple(reruns))


def encode_ref(ref: ObjectRef) -> list[Any]:
    """Convert an object reference to its form in metadata."""
    return [ref.session, str(ref.id), ref.key, ref.instance, ref.generation]


def decode_ref(fields: Sequence[Any]) -> ObjectRef:
    """Parse what :func:`encode_ref` returned."""
    session, oid, key, instance, generation = fields
    return ObjectRef(str(session), ObjectID(oid), str(key), str(instance), int(generation))
