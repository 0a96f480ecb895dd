"""The fault pipeline as a Dagster job; each step is a process of the multiprocess executor.

The environment variable FAILOVER_SETTINGS may name a file with further variables, which each process reads when it
loads this module.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
if "FAILOVER_SETTINGS" in os.environ:
    os.environ.update(json.loads(Path(os.environ["FAILOVER_SETTINGS"]).read_text()))

import faults  # noqa: F401 - Dagster removes the directory from the path once it has loaded this file
import numpy as np
import pipeline
from dagster import Definitions, In, Nothing, in_process_executor, job, multiprocess_executor, op
from entrepot_dagster import EntrepotIOManager, policy_failure_hook, policy_retries, policy_sensors

# How step processes start: forkserver, or spawn, which is Dagster's default; in_process: without step processes.
START_VARIABLE = "FAILOVER_START"
_PRELOADED = [
    "dagster._core.instance.factory",
    "dagster._core.storage.sqlite_storage",
    "dagster._daemon.controller",
    "entrepot_dagster.hooks",
    "entrepot_dagster.sensors",
    "entrepot_policy.checkpoints.checkpointer",
]
_START_METHODS: dict[str, Any] = {"spawn": {"spawn": {}}, "forkserver": {"forkserver": {"preload_modules": _PRELOADED}}}
_start_method = os.environ.get(START_VARIABLE, "forkserver")
EXECUTOR = (
    in_process_executor
    if _start_method == "in_process"
    else multiprocess_executor.configured({"max_concurrent": 2, "start_method": _START_METHODS[_start_method]})
)


@op
def numbers() -> np.ndarray:
    return pipeline.numbers()


@op
def left(values: np.ndarray) -> np.ndarray:
    return pipeline.left(values)


@op
def right(values: np.ndarray) -> np.ndarray:
    return pipeline.right(values)


@op(ins={"after": In(Nothing)})
def strike() -> None:
    pipeline.strike()


@op(ins={"after": In(Nothing)})
def join(doubled: np.ndarray, tripled: np.ndarray) -> np.ndarray:
    return pipeline.join(doubled, tripled)


@op
def report(joined: np.ndarray) -> int:
    return pipeline.report(joined)


@job(
    resource_defs={"io_manager": EntrepotIOManager()},
    executor_def=EXECUTOR,
    op_retry_policy=policy_retries(),
    hooks={policy_failure_hook},
)
def flow() -> None:
    values = numbers()
    doubled, tripled = left(values), right(values)
    report(join(doubled, tripled, after=strike(after=[doubled, tripled])))


defs = Definitions(jobs=[flow], sensors=policy_sensors(minimum_interval_seconds=1))
