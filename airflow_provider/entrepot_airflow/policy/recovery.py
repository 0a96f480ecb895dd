"""Reading and writing under a policy.

read --lost--> the policy's steps --value restored--> continue
                    `--tasks must be rerun--> they are cleared, and the reader's attempt ends as a reschedule
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from entrepot.codec import CopyMode
from entrepot.errors import ObjectLost
from entrepot_io.plain_log import plain_logger
from entrepot_io.reference import Reference
from entrepot_policy import ObjectRef, RerunNeeded
from entrepot_policy.state.events import Event

from entrepot_airflow.policy import rerun_client, task_attempts, task_state
from entrepot_airflow.policy.policy_runtime import runtime
from entrepot_airflow.xcom_key import XComKey

if TYPE_CHECKING:
    from entrepot import Store

log = plain_logger(__name__)
MAX_EVENTS = 8  # maximum number of events in a reference
MAX_EVENT_CHARS = 200


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
    attempt = task_attempts.current_attempt(policy)
    if attempt is None:  # in a callback, for example: nothing here could wait for a rerun
        return policy.read(reference, get, copy=copy)
    ref = ObjectRef.of(reference)

    def get_or_wait() -> Any:
        try:
            return get()
        except ObjectLost:
            rerun_client.reschedule_if_running(attempt, policy.graph.maker(ref))
            raise

    try:
        return attempt.run.read(reference, get_or_wait, copy=copy)
    except RerunNeeded as needed:
        rerun_client.request_rerun(attempt, needed)


def write(xcom_key: XComKey, put: Callable[[], Reference], open_store: Callable[[], Store]) -> dict[str, Any]:
    """Write a value with its lineage, and checkpoint it if the policy says so.

    Args:
        xcom_key: the XCom.
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
    attempt = task_attempts.writing_attempt(policy, xcom_key)
    with task_attempts.attribute_events(attempt):
        reference = policy.failover.write(attempt.run.subject, open_store, put)  # opening the store may fail as well
        written = attempt.run.write(open_store(), lambda: reference)
    entry = written.to_dict()
    checkpoint = attempt.checkpoint_events.get(str(written.id))
    if checkpoint is not None:
        entry["checkpoint"] = checkpoint.text.rpartition(" (")[0]
        task_state.record_checkpoint(attempt, written, entry["checkpoint"])
    if history := [*task_state.history(attempt), *map(_summarize, attempt.recent_events)]:
        entry["failover"] = history[-MAX_EVENTS:]
    return entry


def _summarize(event: Event) -> str:
    what = event.key or event.object or event.task
    text = f"{event.kind} {what}: {event.text}" if event.text else f"{event.kind} {what}"
    return text if len(text) <= MAX_EVENT_CHARS else text[:MAX_EVENT_CHARS] + "..."
