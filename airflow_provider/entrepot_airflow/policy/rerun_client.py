"""The reader's side of a rerun: the lost values' tasks are cleared, and the reader's attempt ends as a reschedule.

A reschedule uses up no retry.

lost --request--> cleared --rescheduled--> held --released--> (the scheduler runs the reader again) --> reads again
  |                  `--no answer, or not possible--> ObjectLost, with the reason
  `--the maker is already running again--> rescheduled

Why the reader is held: docs/decisions/0020-held-readers.md.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, NoReturn

from entrepot.errors import InvalidArgument, ObjectLost
from entrepot_io.plain_log import plain_logger
from entrepot_io.sessions import parse_ttl
from entrepot_policy import RerunNeeded, Task

from entrepot_airflow.compat import task_process
from entrepot_airflow.configuration import option
from entrepot_airflow.policy import task_state
from entrepot_airflow.policy.rerun_messages import ANSWER_KEY, REQUEST_KEY, Answer, Instance, Request, format_instances
from entrepot_airflow.policy.task_attempts import ORCHESTRATOR, Attempt, instance_of

log = plain_logger(__name__)
DEFAULT_TIMEOUT = "60s"
POLL_SECONDS = (0.1, 1.0)  # interval between polls for the answer: initial and maximum
UPSTREAM_DELAY = timedelta(seconds=1)  # for upstream tasks: the scheduler makes the reader wait for them anyway
# For tasks that it reads from without depending on them: nothing makes it wait.
INDEPENDENT_DELAY = timedelta(seconds=10)
HELD_DELAY = timedelta(minutes=5)  # fallback: the rerun service releases it earlier, as long as it runs
_FINISHED_STATES = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


def request_rerun(attempt: Attempt, needed: RerunNeeded) -> NoReturn:
    """Have the tasks of a plan cleared, and end this attempt so that it runs again after them.

    Args:
        attempt: the reader's attempt.
        needed: the policy's plan.

    Raises:
        AirflowRescheduleException: on success.
        ObjectLost: the tasks cannot be cleared; the message says why.
    """
    instances, upstream = _planned_instances(attempt, needed), _depends_on_makers(attempt, needed)
    request = Request(instances, needed.rule, hold=not task_process.is_dag_test(), after=() if upstream else instances)
    answer = _await_answer(attempt, request)
    if answer is None:
        raise ObjectLost(
            f"{needed}. The scheduler did not clear them within {_timeout():g} s: it must have entrepot installed and "
            "the same policy set ([entrepot] policy or ENTREPOT_POLICY)"
        ) from needed
    if answer.problem:
        raise ObjectLost(f"{needed}. They cannot be cleared: {answer.problem}") from needed
    summary = f"{needed.rule}: rerunning {format_instances(answer.cleared)}"
    if answer.waiting:
        summary += f", already rerunning {format_instances(answer.waiting)}"
    log.warning("Entrepot: %s; this task runs after them", summary)
    task_state.append_history(attempt, summary)
    task_process.reschedule(HELD_DELAY if answer.held else UPSTREAM_DELAY if upstream else INDEPENDENT_DELAY)


def reschedule_if_running(attempt: Attempt, maker: Task | None) -> None:
    """End this attempt as a reschedule if the task that makes the missing value is already running again.

    Args:
        attempt: the reader's attempt.
        maker: the task that makes the value; None: unknown.

    Raises:
        AirflowRescheduleException: it is.
    """
    own_task = attempt.task
    if (
        maker is None
        or maker == own_task
        or (maker.orchestrator, maker.pipeline, maker.run) != (ORCHESTRATOR, own_task.pipeline, own_task.run)
    ):
        return
    if _state(attempt.ti, instance_of(maker)) in _FINISHED_STATES:
        return
    log.warning("Entrepot: %s is already being rerun; this task runs after it", maker)
    request = Request((), "", hold=not task_process.is_dag_test(), after=(instance_of(maker),))
    answer = _await_answer(attempt, request) if request.hold else None
    task_process.reschedule(HELD_DELAY if answer is not None and answer.held else INDEPENDENT_DELAY)


def _planned_instances(attempt: Attempt, needed: RerunNeeded) -> tuple[Instance, ...]:
    own_task = attempt.task
    for task in needed.plan.tasks:
        if (task.orchestrator, task.pipeline, task.run) != (ORCHESTRATOR, own_task.pipeline, own_task.run):
            raise ObjectLost(
                f"{needed}. {task} belongs to another run ({task.run}) and cannot be rerun from here: clear it there"
            ) from needed
        if task == own_task:
            raise ObjectLost(f"{needed}. {task} would have to be rerun before itself") from needed
    return tuple(instance_of(task) for task in needed.plan.tasks)


def _depends_on_makers(attempt: Attempt, needed: RerunNeeded) -> bool:
    """Return whether Airflow itself makes the reader wait for the tasks that make the missing values."""
    missing_ids = {ref.id for ref in needed.plan.requested}
    makers = {
        instance_of(rerun.task)[0]
        for rerun in needed.plan.reruns
        if any(output.id in missing_ids for output in rerun.outputs)
    }
    return makers <= set(getattr(attempt.ti.task, "upstream_task_ids", ()))


def _await_answer(attempt: Attempt, request: Request) -> Answer | None:
    ti = attempt.ti
    task_process.write_own_xcom(ti, REQUEST_KEY, request.to_json())
    if task_process.is_dag_test():  # no scheduler, but its database is accessible
        from entrepot_airflow.policy.rerun_service import serve_once

        serve_once()
    deadline = time.monotonic() + _timeout()
    pause, longest = POLL_SECONDS
    while True:
        answer = Answer.from_json(task_process.read_own_xcom(ti, ANSWER_KEY))
        if answer is not None and answer.id == request.id:
            return answer
        if time.monotonic() >= deadline:
            # Nobody waits any more, so it must not be carried out.
            task_process.delete_own_xcom(ti, REQUEST_KEY)
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, longest)


def _state(ti: Any, instance: Instance) -> str:
    task_id, index = instance
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task_id], run_ids=[ti.run_id]).get(ti.run_id, {})
    # In this response, Airflow names mapped instances "task_index".
    state = states.get(task_id if index < 0 else f"{task_id}_{index}", "removed")
    return str(getattr(state, "value", state))


def _timeout() -> float:
    text = option("rerun_timeout") or DEFAULT_TIMEOUT
    try:
        return parse_ttl(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"[entrepot] rerun_timeout must be a time such as '60s', not {text!r}") from error
