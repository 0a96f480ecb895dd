"""A step's inputs, read from the event log of a run that Dagster created."""

from collections.abc import Iterator
from typing import Any

import pytest
from dagster import (
    AssetExecutionContext,
    DagsterInstance,
    DynamicOut,
    DynamicOutput,
    Out,
    StaticPartitionsDefinition,
    asset,
    job,
    materialize,
    op,
)
from dagster._core.execution.plan.outputs import StepOutputHandle
from dagster._core.execution.plan.state import KnownExecutionState
from entrepot_dagster import EntrepotIOManager
from entrepot_dagster.pods.step_inputs import RecordedOutputs, named_references
from entrepot_io.connections import close_all


@op(out=DynamicOut())
def split() -> Any:
    yield DynamicOutput(b"a" * 10_000, mapping_key="first")
    yield DynamicOutput(b"b" * 20_000, mapping_key="second")


@op
def grow(part: bytes) -> bytes:
    return part * 2


@op(out={"one": Out(), "two": Out()})
def several() -> tuple[bytes, bytes]:
    return b"c" * 30_000, b"d" * 40_000


@op
def gather(parts: list[bytes], first_output: bytes) -> int:
    return len(first_output) + sum(map(len, parts))


@job
def flow() -> None:
    first_output, _ = several()
    gather(split().map(grow).collect(), first_output)


@pytest.fixture
def run(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[DagsterInstance, str]]:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    with DagsterInstance.ephemeral() as instance:
        result = flow.execute_in_process(instance=instance, resources={"io_manager": EntrepotIOManager(scope="tests")})
        assert result.success
        yield instance, result.run_id
    close_all()


def test_outputs_are_found_by_name_and_mapping_key(run: tuple[DagsterInstance, str]) -> None:
    recorded = RecordedOutputs(*run, None)
    handles = {
        StepOutputHandle("split", "result", "second"): 20_000,
        StepOutputHandle("grow[first]", "result"): 20_000,
        StepOutputHandle("several", "two"): 40_000,
    }
    for handle, nbytes in handles.items():
        reference = recorded.of_handle(handle)
        assert reference is not None, handle
        assert reference.nbytes == nbytes
    assert recorded.of_handle(StepOutputHandle("split", "result", "third")) is None


def test_all_outputs_of_a_step(run: tuple[DagsterInstance, str]) -> None:
    recorded = RecordedOutputs(*run, None)
    assert sorted(reference.nbytes for reference in recorded.of_step("several")) == [30_000, 40_000]
    assert sorted(reference.nbytes for reference in recorded.of_step("split")) == [10_000, 20_000]
    assert list(recorded.of_step("nobody")) == []


def test_a_re_execution_finds_its_parents_outputs(run: tuple[DagsterInstance, str]) -> None:
    instance, parent = run
    parent_run = instance.get_run_by_id(parent)
    assert parent_run is not None
    parent_state = KnownExecutionState.build_for_reexecution(instance, parent_run)
    recorded = RecordedOutputs(instance, "a-run-that-has-made-nothing", parent_state)
    reference = recorded.of_handle(StepOutputHandle("several", "one"))
    assert reference is not None
    assert reference.nbytes == 30_000
    assert [item.nbytes for item in recorded.of_step("grow[second]")] == [40_000]
    assert (
        RecordedOutputs(instance, "a-run-that-has-made-nothing", None).of_handle(StepOutputHandle("several", "one"))
        is None
    )


@asset(partitions_def=StaticPartitionsDefinition(["a", "b"]))
def orders(context: AssetExecutionContext) -> bytes:
    return b"x" * {"a": 10_000, "b": 20_000}[context.partition_key]


def test_an_asset_by_name_is_the_partition_of_the_run_or_else_its_last(
    run: tuple[DagsterInstance, str],
) -> None:
    instance, run_id = run
    resources = {"io_manager": EntrepotIOManager(scope="tests")}
    for partition in ("a", "b"):
        assert materialize([orders], instance=instance, resources=resources, partition_key=partition).success
    recorded = RecordedOutputs(instance, run_id, None)

    def sizes(name: str, partition: str | None) -> list[int]:
        return [reference.nbytes for reference in named_references(instance, recorded, [name], partition)]

    assert sizes("asset:orders", "a") == [10_000]
    assert sizes("asset:orders@b", "a") == [20_000]
    assert sizes("asset:orders", "of-another-definition") == [20_000]
    assert sizes("asset:orders", None) == [20_000]
    assert sizes("asset:nobodys", "a") == []
