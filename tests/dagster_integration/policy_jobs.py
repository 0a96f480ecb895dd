"""Jobs whose steps lose other steps' values once; Dagster reloads them by file, so each run imports this module."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from dagster import (
    AssetExecutionContext,
    DynamicOut,
    DynamicOutput,
    In,
    Nothing,
    OpExecutionContext,
    StaticPartitionsDefinition,
    asset,
    define_asset_job,
    in_process_executor,
    job,
    op,
)
from dagster import Definitions as Defs
from entrepot import raw_objects
from entrepot_dagster import EntrepotIOManager, policy_failure_hook, policy_retries
from entrepot_dagster.values.keys import default_scope, key_of_output
from entrepot_io.connections import session_store

IO = {"io_manager": EntrepotIOManager()}
FOLDER_VARIABLE = "POLICY_JOBS_FOLDER"


def record_run(step: str) -> int:
    """Record that a step runs, and return how many times it has run."""
    path = Path(os.environ[FOLDER_VARIABLE]) / step
    count = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(count))
    return count


def discard(context: OpExecutionContext, *identifier: str) -> None:
    """Lose an op's output of this run."""
    output_key = key_of_output([context.run_id, *identifier])
    store = session_store(None, default_scope(context.instance), output_key.session, None)
    raw_objects.discard(store, store.derive(output_key.key))


@op
def numbers() -> np.ndarray:
    record_run("numbers")
    return np.arange(10_000)


@op
def double(values: np.ndarray) -> np.ndarray:
    record_run("double")
    return values * 2


@op(ins={"after": In(Nothing)})
def lose(context: OpExecutionContext) -> None:
    if record_run("lose") <= int(os.environ.get("POLICY_JOBS_LOSSES", "1")):
        discard(context, "double", "result")


@op(ins={"after": In(Nothing)})
def total(values: np.ndarray) -> int:
    record_run("total")
    return int(values.sum())


@job(resource_defs=IO, executor_def=in_process_executor, hooks={policy_failure_hook}, op_retry_policy=policy_retries())
def losing() -> None:
    values = double(numbers())
    total(values, after=lose(values))


@job(resource_defs=IO, executor_def=in_process_executor)
def many_readers() -> None:
    values = double(numbers())
    lost = lose(values)
    for number in range(4):
        total.alias(f"total_{number}")(values, after=lost)


@op(out=DynamicOut())
def split() -> Iterator[Any]:
    record_run("split")
    for number in range(3):
        yield DynamicOutput(np.full(1_000, number), mapping_key=f"part_{number}")


@op
def times_two(context: OpExecutionContext, part: np.ndarray) -> np.ndarray:
    record_run(context.get_step_execution_context().step.key)
    return part * 2


@op
def lose_part(context: OpExecutionContext, parts_: list[np.ndarray]) -> int:
    if record_run("lose_part") == 1:
        discard(context, "times_two[part_1]", "result")
        if os.environ.get("POLICY_JOBS_SPLIT"):
            discard(context, "split", "result", "part_1")
    return len(parts_)


@op
def sum_parts(parts_: list[np.ndarray], count: int) -> int:
    record_run("sum_parts")
    answer = int(sum(int(part.sum()) for part in parts_)) + count
    Path(os.environ[FOLDER_VARIABLE]).with_name("answer").write_text(str(answer))
    return answer


@job(resource_defs=IO, executor_def=in_process_executor)
def mapped() -> None:
    doubled = split().map(times_two).collect()
    sum_parts(doubled, lose_part(doubled))


@op
def fails_twice() -> np.ndarray:
    if record_run("fails_twice") <= 2:
        raise RuntimeError("told to fail")
    return np.arange(10)


@job(resource_defs=IO, executor_def=in_process_executor, hooks={policy_failure_hook}, op_retry_policy=policy_retries())
def flaky() -> None:
    fails_twice()


DAYS = StaticPartitionsDefinition(["monday", "tuesday"])


@asset(partitions_def=DAYS, tags={"team": "data"})
def raw(context: AssetExecutionContext) -> np.ndarray:
    record_run(f"raw-{context.partition_key}")
    return np.arange(5_000) + len(context.partition_key)


@asset(partitions_def=DAYS)
def clean(context: AssetExecutionContext, raw: np.ndarray) -> np.ndarray:
    record_run(f"clean-{context.partition_key}")
    return raw + 1


make_raw = define_asset_job("make_raw", selection=[raw], executor_def=in_process_executor)
make_clean = define_asset_job("make_clean", selection=[clean], executor_def=in_process_executor)
make_both = define_asset_job("make_both", selection=[raw, clean], executor_def=in_process_executor)
definitions = Defs(
    assets=[raw, clean], jobs=[make_raw, make_clean, make_both, losing, many_readers, mapped, flaky], resources=IO
)
