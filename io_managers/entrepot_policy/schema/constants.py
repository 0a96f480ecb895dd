"""The words and the defaults of a policy, and its format version: for code that has no policy file to read.

Separate from ``definition``, which imports pydantic.
"""

from __future__ import annotations

from typing import Literal, get_args

FORMAT_VERSION = 1

OrchestratorName = Literal["airflow", "dagster", "kedro"]
EventName = Literal[
    "object_lost",
    "object_dropped",
    "checkpoint_damaged",
    "task_failed",
    "daemon_lost",
    "instance_lost",
    "store_full",
]
StepName = Literal["reload_checkpoint", "reread_durable", "rerun_upstream", "retry", "evict", "fail"]
Mode = Literal["sync", "async"]

EVENTS: tuple[EventName, ...] = get_args(EventName)
STEPS: tuple[StepName, ...] = get_args(StepName)
# Steps that can handle each event.
STEPS_OF = {
    "object_lost": ("reload_checkpoint", "reread_durable", "rerun_upstream", "retry", "fail"),
    "object_dropped": ("reload_checkpoint", "reread_durable", "rerun_upstream", "retry", "fail"),
    "instance_lost": ("reload_checkpoint", "reread_durable", "rerun_upstream", "retry", "fail"),
    "checkpoint_damaged": ("reload_checkpoint", "reread_durable", "rerun_upstream", "retry", "fail"),
    "task_failed": ("retry", "fail"),
    "daemon_lost": ("retry", "fail"),
    "store_full": ("evict", "retry", "fail"),
}
MATCH_KEYS = ("orchestrator", "pipeline", "task", "asset", "dataset", "key", "tag", "type")

DEFAULT_MODE: Mode = "sync"
DEFAULT_QUEUE = 64
DEFAULT_WAIT_SECONDS = 60.0
DEFAULT_FAILURES_PER_DAY = 0.1
DEFAULT_MAX_ATTEMPTS = 3
DEFAULT_BACKOFF_SECONDS = 1.0
DEFAULT_BACKOFF_FACTOR = 2.0
DEFAULT_MAX_BACKOFF_SECONDS = 60.0
DEFAULT_MAX_TASKS = 100
DEFAULT_EVENT_BYTES = 16 << 20
DEFAULT_OVERHEAD_SECONDS = 10.0  # of an orchestrator that starts a process for each task, and polls for it
