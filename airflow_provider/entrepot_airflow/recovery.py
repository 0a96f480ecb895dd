"""Reading and writing under a policy.

read --lost--> the policy's steps --value restored--> continue
                    `--tasks must be rerun--> they are cleared, and the reader's attempt ends as a reschedule
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from entrepot.codec import CopyMode
from entrepot.errors import ObjectLost
from entrepot_io.policy import ObjectRef, RerunNeeded
from entrepot_io.policy.events import Event
from entrepot_io.reference import Reference

from entrepot_airflow import attempts, remembering, reruns
from entrepot_airflow.runtimes import runtime
from entrepot_airflow.transfer import Coordinate

if TYPE_CHECKING:
    from entrepot import Store

log = logging.getLogger(__name__)
MAX_TOLD = 8  # maximum number of events in a reference
MAX_TOLD_BYTES = 200


def read(reference: Reference, get: Callable[[], Any], copy: CopyMode) -> Any:
    """Read a value; if it is lost, recover it as the policy says.

    Args:
        reference: reference to the value.
        get: reads it.
        copy: copy mode of ``get``.

    Raises:
        AirflowRescheduleException: upstream tasks are rerun, and this one after them.
        ObjectLost, StoreUnavailable, ...: the policy gave up; the message says what was tried.
        PolicyError: the policy is invalid.
    """
    policy = runtime()
    if policy is None:
        return get()
    attempt = attempts.current(policy)
    if attempt is None:  # in a callback, for example: nothing here could wait for a rerun
        return policy.read(reference, get, copy=copy)
    ref = ObjectRef.of(reference)

    def get_or_wait() -> Any:
        try:
            return get()
        except ObjectLost:
            reruns.wait_if_under_way(attempt, policy.graph.maker(ref))
            raise

    try:
        return attempt.run.read(reference, get_or_wait, copy=copy)
    except RerunNeeded as needed:
        reruns.run_again(attempt, needed)


def write(at: Coordinate, put: Callable[[], Reference], open_store: Callable[[], Store]) -> dict[str, Any]:
    """Write a value with its lineage, and checkpoint it if the policy says so.

    Args:
        at: the XCom.
        put: writes it.
        open_store: opens its session.

    Returns:
        The entry for Airflow's database, with the value's checkpoint and events of the task.

    Raises:
        StoreFull, StoreUnavailable: the policy gave up.
        PolicyError: the policy is invalid.
        Anything else that ``put`` raises; if the policy says ``on_error: fail``, also what saving raises.
    """
    policy = runtime()
    if policy is None:
        return put().to_dict()
    attempt = attempts.writer(policy, at)
    with attempts.writing(attempt):
        reference = policy.failover.write(attempt.run.subject, open_store, put)  # opening the store may fail as well
        written = attempt.run.write(open_store(), lambda: reference)
    entry = written.to_dict()
    checkpoint = attempt.written.get(str(written.id))
    if checkpoint is not None:
        entry["checkpoint"] = checkpoint.text.rpartition(" (")[0]
        remembering.checkpoint(attempt, written, entry["checkpoint"])
    if told := [*remembering.told(attempt), *map(_in_short, attempt.happened)]:
        entry["failover"] = told[-MAX_TOLD:]
    return entry


def _in_short(event: Event) -> str:
    what = event.key or event.object or event.task
    text = f"{event.kind} {what}: {event.text}" if event.text else f"{event.kind} {what}"
    return text if len(text) <= MAX_TOLD_BYTES else text[:MAX_TOLD_BYTES] + "..."
