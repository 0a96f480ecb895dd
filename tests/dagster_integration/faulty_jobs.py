"""A job whose steps kill or stop what their configuration names, on their first attempt.

Steps are forked from a server that keeps the environment of its start, so all settings are in the run's configuration.
"""

# Annotations are not postponed here: Dagster looks at those of ops.
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run_programs"))

import entrepot
import numpy as np
from dagster import Config, OpExecutionContext, RetryPolicy, job, multiprocess_executor, op
from entrepot_dagster import EntrepotIOManager
from pydantic import Field
from suspension import suspend

ROWS = 100_000


class Strike(Config):
    """What a step does on its first attempt.

    Words: ``exception``, ``kill-`` or ``stop-`` with ``run``, ``step``, ``daemon`` or ``keeper``, and ``kill-store``.
    The ID of a process that is stopped goes to ``pid_file``; that of the run is in ``run_pid_file``.
    """

    words: list[str] = Field(default_factory=list)
    address: str = ""
    pid_file: str = ""
    run_pid_file: str = ""


def strike(context: OpExecutionContext, config: Strike) -> None:
    if context.retry_number > 0 or not config.words:
        return
    with entrepot.connect(config.address, scope="faults") as store:
        status = store.status()
    processes = {"daemon": status["pid"], "keeper": status["keeper_pid"], "step": os.getpid()}
    if config.run_pid_file:
        processes["run"] = int(Path(config.run_pid_file).read_text())
    for word in config.words:
        action, _, name = word.partition("-")
        if word == "kill-store":
            suspend(status["keeper_pid"])  # or it would start another daemon
            os.kill(status["pid"], signal.SIGKILL)
            os.kill(status["keeper_pid"], signal.SIGKILL)
        elif action == "kill":
            os.kill(processes[name], signal.SIGKILL)
        elif action == "stop":
            Path(config.pid_file).write_text(str(processes[name]))
            if name == "step":
                os.kill(processes[name], signal.SIGSTOP)  # goes on when the test says so
            else:
                suspend(processes[name])
        else:
            raise RuntimeError("as it was told to")


@op(retry_policy=RetryPolicy(max_retries=1))
def numbers(context: OpExecutionContext, config: Strike) -> np.ndarray:
    strike(context, config)
    return np.arange(ROWS)


@op(retry_policy=RetryPolicy(max_retries=1))
def doubled(context: OpExecutionContext, config: Strike, values: np.ndarray) -> np.ndarray:
    strike(context, config)
    return values * 2


@op(retry_policy=RetryPolicy(max_retries=1))
def total(context: OpExecutionContext, config: Strike, values: np.ndarray) -> int:
    strike(context, config)
    return int(values.sum())


@job(
    resource_defs={"io_manager": EntrepotIOManager.configure_at_launch()},
    executor_def=multiprocess_executor.configured(
        {"max_concurrent": 2, "start_method": {"forkserver": {"preload_modules": ["entrepot_dagster.io_manager"]}}}
    ),
)
def struck() -> None:
    total(doubled(numbers()))
