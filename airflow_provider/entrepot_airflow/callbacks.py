"""Task callbacks and a notifier that report what happened to a task, and what the policy does about it.

Airflow calls them in the task's process when the task raises; after a kill, in another process or, on the last try, not
at all. So they only report, and nothing depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from airflow.sdk import BaseNotifier
from entrepot_io.plain_log import plain_logger
from entrepot_policy.state.events import Event, read_events

from entrepot_airflow.policy.policy_runtime import runtime
from entrepot_airflow.policy.task_attempts import task_of

log = plain_logger(__name__)
MAX_EVENTS = 50


def on_failure(context: Any) -> None:
    """For ``on_failure_callback``: write what happened to the task in this run to its log."""
    log.error("%s", summary(context, "failed"))


def on_retry(context: Any) -> None:
    """For ``on_retry_callback``: the same, if another attempt follows."""
    log.warning("%s", summary(context, "will be retried"))


def summary(context: Any, outcome: str) -> str:
    """Summarize what happened to a task in this run, for people.

    Args:
        context: context of the task or DAG.
        outcome: the outcome, as text.
    """
    ti = context.get("ti") or context.get("task_instance")
    if ti is None:
        return f"Entrepot: {context.get('run_id') or 'the run'} {outcome}"
    events = list(events_of(ti))
    lines = "\n".join(f"  {event}" for event in events[-MAX_EVENTS:]) or "  no policy events"
    return f"Entrepot: {task_of(ti)} {outcome}. Events in this run:\n{lines}"


def events_of(ti: Any) -> Iterator[Event]:
    """Yield the events of a task instance's run that concern it or its outputs, oldest first.

    Args:
        ti: Airflow's task instance.
    """
    policy = runtime()
    if policy is None:
        return
    task = task_of(ti)
    for event in read_events(policy.log.path):
        if (event.pipeline, event.run, event.task) == (task.pipeline, task.run, task.name):
            yield event


class FailoverNotifier(BaseNotifier):
    """Passes a summary to a function of the user; for any ``on_..._callback`` of a task.

    Args:
        send: called with the text, for example to post it; None: write it to the log.
        what: outcome of the task, as text.

    >>> notifier = FailoverNotifier(print, what="failed")
    >>> notifier.notify({"run_id": "nightly"})
    Entrepot: nightly failed
    """

    template_fields = ("what",)

    def __init__(self, send: Callable[[str], object] | None = None, what: str = "failed") -> None:
        super().__init__()
        self.send = send
        self.what = what

    def notify(self, context: Any) -> None:
        """Send the summary."""
        text = summary(context, self.what)
        if self.send is None:
            log.error("%s", text)
        else:
            self.send(text)
