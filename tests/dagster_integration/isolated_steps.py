"""A job whose steps an executor of step handlers launches, each by Dagster's own command for one step.

Executors for Docker, ECS and Celery work so as well; what differs is where the command runs.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from dagster import (
    DagsterEvent,
    DynamicOut,
    DynamicOutput,
    Executor,
    InitExecutorContext,
    executor,
    job,
    multiple_process_executor_requirements,
    op,
)
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.step_delegating import (
    CheckStepHealthResult,
    StepDelegatingExecutor,
    StepHandler,
    StepHandlerContext,
)
from entrepot_dagster import EntrepotIOManager


class CommandForEachStep(StepHandler):
    """Runs ``dagster api execute_step``; the step's process reports to the instance."""

    @property
    def name(self) -> str:
        return "command for each step"

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def launch_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        arguments = step_handler_context.execute_step_args
        (key,) = list(arguments.step_keys_to_execute or [])
        variables = {each["name"]: each["value"] for each in arguments.get_command_env()}
        command = [sys.executable, "-m", *arguments.get_command_args(skip_serialized_namedtuple=True)]
        self._processes[key] = subprocess.Popen(
            command, env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        yield DagsterEvent.step_worker_starting(
            step_handler_context.get_step_context(key), message=f"Runs the command of step {key}", metadata={}
        )

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        (key,) = list(step_handler_context.execute_step_args.step_keys_to_execute or [])
        if self._processes[key].poll() in (None, 0):
            return CheckStepHealthResult.healthy()
        return CheckStepHealthResult.unhealthy(f"the command ended with {self._processes[key].returncode}")

    def terminate_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        (key,) = list(step_handler_context.execute_step_args.step_keys_to_execute or [])
        self._processes[key].terminate()
        yield from ()


@executor(name="isolated", requirements=multiple_process_executor_requirements())
def isolated_executor(init_context: InitExecutorContext) -> Executor:
    return StepDelegatingExecutor(
        CommandForEachStep(), RetryMode.ENABLED, sleep_seconds=0.1, check_step_health_interval_seconds=5
    )


@op(out=DynamicOut())
def split() -> Any:
    for number in range(2):
        yield DynamicOutput(np.full(10_000, number), mapping_key=f"part_{number}")


@op
def double(part: np.ndarray) -> tuple[int, np.ndarray]:
    assert not part.flags.writeable
    return os.getpid(), part * 2


@op
def total(parts: list[Any]) -> list[int]:
    return [int(sum(int(part.sum()) for _, part in parts)), len({os.getpid(), *(pid for pid, _ in parts)})]


@job(executor_def=isolated_executor, resource_defs={"io_manager": EntrepotIOManager()})
def isolated() -> None:
    total(split().map(double).collect())
