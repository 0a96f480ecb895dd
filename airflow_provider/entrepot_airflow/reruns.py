"""The reader's side of a rerun: the lost values' tasks are cleared, and the reader's attempt ends as a reschedule.

A reschedule uses up no retry.

lost --request--> cleared --rescheduled--> held --released--> (the scheduler runs the reader again) --> reads again
  |                  `--no answer, or not possible--> ObjectLost, with the reason
  `--the maker is already running again--> rescheduled

Why the reader is held: docs/decisions/0020-held-readers.md.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta, timezone
from typing import Any, NoReturn

from entrepot.errors import InvalidArgument, ObjectLost
from entrepot_io.policy import RerunNeeded, Task
from entrepot_io.sessions import parse_ttl

from entrepot_airflow import remembering
from entrepot_airflow.asking import ANSWER, REQUEST, Answer, Instance, Request, in_words
from entrepot_airflow.attempts import HOST, Attempt, instance_of
from entrepot_airflow.configuration import option

log = logging.getLogger(__name__)
DEFAULT_TIMEOUT = "60s"
POLL_SECONDS = (0.1, 1.0)  # interval between polls for the answer: initial and maximum
SOON = timedelta(seconds=1)  # for upstream tasks: the scheduler makes the reader wait for them anyway
LATER = timedelta(seconds=10)  # for tasks that it reads from without depending on them: nothing makes it wait
HELD = timedelta(minutes=5)  # fallback: the clerk releases it earlier, unless there is no clerk any more
# Inputs are read while a task's arguments are rendered, and this logger reports any exception there as an error.
_TEMPLATES = logging.getLogger("airflow.sdk.definitions._internal.templater")
_ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


def run_again(attempt: Attempt, needed: RerunNeeded) -> NoReturn:
    """Have the tasks of a plan cleared, and end this attempt so that it runs again after them.

    Args:
        attempt: the reader's attempt.
        needed: the policy's plan.

    Raises:
        AirflowRescheduleException: on success.
        ObjectLost: the tasks cannot be cleared; the message says why.
    """
    wanted, upstream = _instances(attempt, needed), _upstream(attempt, needed)
    request = Request(wanted, needed.rule, hold=not _in_process(), after=() if upstream else wanted)
    answer = _answered(attempt, request)
    if answer is None:
        raise ObjectLost(
            f"{needed}. Nobody cleared them within {_timeout():g} s: the scheduler's process does it, which needs "
            "entrepot installed there and the same policy ([entrepot] policy or ENTREPOT_POLICY) set"
        ) from needed
    if answer.problem:
        raise ObjectLost(f"{needed}. They cannot be cleared: {answer.problem}") from needed
    said = f"{needed.rule}: run again {in_words(answer.cleared)}"
    if answer.waiting:
        said += f", already running again {in_words(answer.waiting)}"
    log.warning("Entrepot: %s; this task comes after them", said)
    remembering.remember(attempt, said)
    _reschedule(HELD if answer.held else SOON if upstream else LATER)


def wait_if_under_way(attempt: Attempt, maker: Task | None) -> None:
    """End this attempt as a reschedule if the task that makes the missing value is already running again.

    Args:
        attempt: the reader's attempt.
        maker: the task that makes the value; None: unknown.

    Raises:
        AirflowRescheduleException: it is.
    """
    mine = attempt.task
    if maker is None or maker == mine or (maker.host, maker.pipeline, maker.run) != (HOST, mine.pipeline, mine.run):
        return
    if _state(attempt.ti, instance_of(maker)) in _ENDED:
        return
    log.warning("Entrepot: %s is running again; this task comes after it", maker)
    request = Request((), "", hold=not _in_process(), after=(instance_of(maker),))
    answer = _answered(attempt, request) if request.hold else None
    _reschedule(HELD if answer is not None and answer.held else LATER)


def _instances(attempt: Attempt, needed: RerunNeeded) -> tuple[Instance, ...]:
    mine = attempt.task
    for task in needed.plan.tasks:
        if (task.host, task.pipeline, task.run) != (HOST, mine.pipeline, mine.run):
            raise ObjectLost(
                f"{needed}. {task} belongs to another run ({task.run}), which this one cannot have run again: clear it "
                "there"
            ) from needed
        if task == mine:
            raise ObjectLost(f"{needed}. {task} would have to run before itself") from needed
    return tuple(instance_of(task) for task in needed.plan.tasks)


def _upstream(attempt: Attempt, needed: RerunNeeded) -> bool:
    """Return whether Airflow itself makes the reader wait for the tasks that make the missing values."""
    wanted = {ref.id for ref in needed.plan.wanted}
    makers = {
        instance_of(rerun.task)[0] for rerun in needed.plan.reruns if any(made.id in wanted for made in rerun.makes)
    }
    return makers <= set(getattr(attempt.ti.task, "upstream_task_ids", ()))


def _answered(attempt: Attempt, request: Request) -> Answer | None:
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import DeleteXCom, GetXCom, SetXCom

    ti = attempt.ti
    where = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": ti.map_index}
    comms: Any = task_runner.SUPERVISOR_COMMS
    comms.send(SetXCom(key=REQUEST, value=request.to_json(), **where))
    if _in_process():  # no scheduler, but its database is accessible
        from entrepot_airflow.clerk import serve_once

        serve_once()
    end = time.monotonic() + _timeout()
    pause, longest = POLL_SECONDS
    while True:
        answer = Answer.from_json(getattr(comms.send(GetXCom(key=ANSWER, **where)), "value", None))
        if answer is not None and answer.id == request.id:
            return answer
        if time.monotonic() >= end:
            comms.send(DeleteXCom(key=REQUEST, **where))  # nobody waits any more, so it must not be carried out
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, longest)


def _in_process() -> bool:
    """Return whether this is ``dag.test()``, whose tasks run in its own process."""
    from airflow.sdk.execution_time import task_runner

    return type(getattr(task_runner, "SUPERVISOR_COMMS", None)).__name__ == "InProcessSupervisorComms"


def _state(ti: Any, instance: Instance) -> str:
    task_id, index = instance
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task_id], run_ids=[ti.run_id]).get(ti.run_id, {})
    # In this response, Airflow names mapped instances "task_index".
    found = states.get(task_id if index < 0 else f"{task_id}_{index}", "removed")
    return str(getattr(found, "value", found))


def _timeout() -> float:
    said = option("rerun_timeout") or DEFAULT_TIMEOUT
    try:
        return parse_ttl(said)
    except InvalidArgument as error:
        raise InvalidArgument(f"[entrepot] rerun_timeout is a time such as '60s', not {said!r}") from error


def _reschedule(after: timedelta) -> NoReturn:
    from airflow.sdk import exceptions

    reschedule: Any = exceptions.AirflowRescheduleException  # untyped
    _TEMPLATES.addFilter(_unless_planned)  # adding the same function again has no effect
    raise reschedule(datetime.now(timezone.utc) + after)


def _unless_planned(record: logging.LogRecord) -> bool:
    """Log filter that drops records about a reschedule."""
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    return type(error).__name__ != "AirflowRescheduleException"
