"""A job whose second step kills or stops what its configuration names, on its first attempt.

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
from suspension import suspend

ROWS = 100_000


class Strike(Config):
    """What the step does: words of ``exception``, ``kill-step``, ``kill-daemon``, ``kill-store``, ``stop-daemon``."""

    words: list[str]
    address: str
    pid_file: str


@op
def numbers() -> np.ndarray:
    return np.arange(ROWS)


@op(retry_policy=RetryPolicy(max_retries=1))
def doubled(context: OpExecutionContext, config: Strike, values: np.ndarray) -> np.ndarray:
    strikes = config.words
    if context.retry_number == 0 and strikes:
        with entrepot.connect(config.address, scope="faults") as store:
            status = store.status()
        if "stop-daemon" in strikes:
            Path(config.pid_file).write_text(str(status["pid"]))
            suspend(status["pid"])
        if "kill-store" in strikes:
            suspend(status["keeper_pid"])  # or it would start another daemon
            os.kill(status["pid"], signal.SIGKILL)
            os.kill(status["keeper_pid"], signal.SIGKILL)
        if "kill-daemon" in strikes:
            os.kill(status["pid"], signal.SIGKILL)
        if "kill-step" in strikes:
            os.kill(os.getpid(), signal.SIGKILL)
        if "exception" in strikes:
            raise RuntimeError("as it was told to")
    return values * 2


@op
def total(values: np.ndarray) -> int:
    return int(values.sum())


@job(
    resource_defs={"io_manager": EntrepotIOManager.configure_at_launch()},
    executor_def=multiprocess_executor.configured(
        {"max_concurrent": 2, "start_method": {"forkserver": {"preload_modules": ["entrepot_dagster.io_manager"]}}}
    ),
)
def struck() -> None:
    total(doubled(numbers()))
