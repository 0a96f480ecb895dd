"""Dagster Pipes: a real external process reads and writes assets, and an op's output, through the store."""

# Annotations are not postponed here: Dagster looks at those of assets.
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import polars as pl
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetSpec,
    BackfillPolicy,
    DagsterInstance,
    Definitions,
    EnvVar,
    OpExecutionContext,
    PipesSubprocessClient,
    SpecificPartitionsPartitionMapping,
    StaticPartitionsDefinition,
    asset,
    job,
    materialize,
    multi_asset,
    op,
)
from dagster._core.errors import DagsterPipesExecutionError
from entrepot.errors import InvalidArgument, InvalidReference, ObjectNotFound, VersionMismatch
from entrepot_dagster import EntrepotIOManager, EntrepotResource, PipesValues
from entrepot_dagster.pipes_task import op_output
from entrepot_io.external_task import ExternalTask, OutputSlot

pytestmark = [pytest.mark.usefixtures("own_store"), pytest.mark.slow]

PROGRAM = str(Path(__file__).with_name("pipes_program.py"))
PARTS = StaticPartitionsDefinition(["a", "b", "c"])
IN_RANGE = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"}


def resources(**settings: Any) -> dict[str, Any]:
    return {
        "io_manager": EntrepotIOManager(**settings),
        "entrepot": EntrepotResource(**settings),
        "pipes": PipesSubprocessClient(),
    }


def run_program(
    what: str,
    context: AssetExecutionContext | OpExecutionContext,
    pipes: PipesSubprocessClient,
    extras: Mapping[str, Any],
) -> Any:
    return pipes.run(context=context, command=[sys.executable, PROGRAM, what], extras=extras)


@asset
def numbers() -> np.ndarray:
    return np.arange(1000)


@asset(deps=[numbers])
def doubled(context: AssetExecutionContext, pipes: PipesSubprocessClient, entrepot: EntrepotResource) -> Any:
    extras = entrepot.pipes_extras(context, {"more": 1})
    assert extras["more"] == 1
    return run_program("double", context, pipes, extras).get_materialize_result()


@asset
def total(doubled: np.ndarray) -> int:
    return int(doubled.sum())


def metadata_of(instance: DagsterInstance, name: str) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(AssetKey(name))
    assert event is not None
    assert event.asset_materialization is not None
    return {label: entry.value for label, entry in event.asset_materialization.metadata.items()}


def test_a_process_without_dagster_reads_and_writes_assets(instance: DagsterInstance) -> None:
    result = materialize([numbers, doubled, total], instance=instance, resources=resources())
    assert result.output_for_node("total") == 1000 * 999
    metadata = metadata_of(instance, "doubled")
    assert metadata["entrepot/bytes"] == 8000
    assert metadata["entrepot/reference"]["key"] == "asset:doubled"
    assert (metadata["entrepot/type"], metadata["by"]) == ("mine", "the program")  # what the program says counts


@asset
def planned(context: AssetExecutionContext, pipes: PipesSubprocessClient, entrepot: EntrepotResource) -> Any:
    return run_program("lazily", context, pipes, entrepot.pipes_extras(context)).get_materialize_result()


@asset(partitions_def=PARTS, backfill_policy=BackfillPolicy.single_run())
def planned_parts(context: AssetExecutionContext, pipes: PipesSubprocessClient, entrepot: EntrepotResource) -> Any:
    return run_program("lazily", context, pipes, entrepot.pipes_extras(context)).get_materialize_result()


def test_plans_are_stored_as_their_rows(instance: DagsterInstance) -> None:
    @asset(ins={"planned_parts": AssetIn(partition_mapping=SpecificPartitionsPartitionMapping(["a", "b"]))})
    def heights(planned: Any, planned_parts: dict[str, Any]) -> list[int]:
        assert isinstance(planned, pl.DataFrame)
        return [planned.height, planned_parts["a"].height, planned_parts["b"].height]

    assert materialize([planned_parts], tags=IN_RANGE, instance=instance, resources=resources()).success
    assets = [planned, planned_parts, heights]
    result = materialize(assets, selection=[planned, heights], instance=instance, resources=resources())
    assert result.output_for_node("heights") == [6, 6, 1]
    assert metadata_of(instance, "planned")["dagster/row_count"] == 6


@asset(name="numbers", partitions_def=PARTS)
def parts(context: AssetExecutionContext) -> np.ndarray:
    return np.full(3, ord(context.partition_key))


@asset(partitions_def=PARTS, deps=[parts], backfill_policy=BackfillPolicy.single_run())
def sums(context: AssetExecutionContext, pipes: PipesSubprocessClient, entrepot: EntrepotResource) -> Any:
    return run_program("double", context, pipes, entrepot.pipes_extras(context)).get_materialize_result()


@asset
def grand_total(sums: dict[str, Any]) -> str:
    return repr({partition: int(np.sum(each)) for partition, each in sums.items()})


def test_partitions_are_dictionaries(instance: DagsterInstance) -> None:
    for key in ("a", "b", "c"):
        materialize([parts], partition_key=key, instance=instance, resources=resources())
    assert materialize([parts, sums], selection=[sums], tags=IN_RANGE, instance=instance, resources=resources()).success
    # One partition in its own run.
    assert materialize(
        [parts, sums], selection=[sums], partition_key="c", instance=instance, resources=resources()
    ).success
    assert metadata_of(instance, "sums")["entrepot/reference"]["key"] == "asset:sums@c"
    result = materialize([sums, grand_total], selection=[grand_total], instance=instance, resources=resources())
    assert result.output_for_node("grand_total") == repr({"a": 3 * 97, "b": 3 * 98, "c": 6 * 99})


def test_a_range_of_one_partition_is_a_dictionary(instance: DagsterInstance) -> None:
    """As other runs of the same backfill have several, and the program is the same."""
    materialize([parts], partition_key="a", instance=instance, resources=resources())
    tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "a"}
    assert materialize([parts, sums], selection=[sums], tags=tags, instance=instance, resources=resources()).success
    sums_now = Definitions(assets=[parts, sums], resources=resources())
    assert sums_now.load_asset_value("sums", partition_key="a", instance=instance) == 3 * 97


@multi_asset(specs=[AssetSpec(["shop", "left"]), AssetSpec("right")], can_subset=True)
def two(context: AssetExecutionContext, pipes: PipesSubprocessClient, entrepot: EntrepotResource) -> Iterator[Any]:
    yield from run_program("both", context, pipes, entrepot.pipes_extras(context)).get_results()


def test_a_step_with_several_assets(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SCOPE", "mine")
    settings = {"scope": EnvVar("MY_SCOPE")}
    assert materialize([two], instance=instance, resources=resources(**settings)).success
    event = instance.get_latest_materialization_event(AssetKey(["shop", "left"]))
    assert event is not None
    assert metadata_of(instance, "right")["entrepot/reference"]["key"] == "asset:right"
    # A subset: the program is told of these assets alone.
    assert materialize([two], selection=["right"], instance=instance, resources=resources(**settings)).success
    with entrepot.connect(scope="mine") as store:
        assert store.get(store.derive("asset:shop/left")) == [1]
        assert store.get(store.derive("asset:right")) == [0]


@asset(deps=[AssetKey("elsewhere")])
def stray(context: AssetExecutionContext, pipes: PipesSubprocessClient, entrepot: EntrepotResource) -> Any:
    return run_program("missing", context, pipes, entrepot.pipes_extras(context)).get_materialize_result()


def test_an_input_that_was_never_written_fails_the_process(
    instance: DagsterInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DagsterPipesExecutionError, match="failed with code 1"):
        materialize([stray], instance=instance, resources=resources())
    assert "this process was given no reference to 'elsewhere', only to nothing" in capfd.readouterr().err


@op
def zeros(context: OpExecutionContext, pipes: PipesSubprocessClient, entrepot: EntrepotResource) -> Any:
    return entrepot.pipes_output(run_program("output", context, pipes, entrepot.pipes_extras(context)))


@op
def length(values: bytes) -> int:
    return len(values)


def test_an_op_returns_what_its_process_has_put(instance: DagsterInstance) -> None:
    @job(resource_defs=resources())
    def measure() -> None:
        length(zeros())

    result = measure.execute_in_process(instance=instance)
    assert result.output_for_node("length") == 100_000


def test_an_op_whose_process_has_put_nothing_fails() -> None:
    for messages in ([], [{"entrepot": {"output": "another"}}], ["a message of another kind"]):
        with pytest.raises(ObjectNotFound, match="has put no output 'result'"):
            op_output(messages, "result")


class Pipes:
    """What PipesValues looks at when it is made."""

    def __init__(self, extras: Mapping[str, Any]) -> None:
        self.extras = extras


@pytest.mark.parametrize(
    ("extras", "error", "text"),
    [
        ({}, InvalidReference, "pipes_extras"),
        ({"entrepot": 7}, InvalidReference, "a JSON object with a version"),
        ({"entrepot": {"version": 2}}, VersionMismatch, "upgrade entrepot"),
        ({"entrepot": {"version": 1, "scope": "a"}}, InvalidReference, "session_ttl, inputs, outputs"),
        (
            {"entrepot": {"version": 1, "scope": "a", "session_ttl": 1, "inputs": {}, "outputs": {"x": {}}}},
            InvalidReference,
            "neither a key nor partitions",
        ),
        (
            {"entrepot": {"version": 1, "scope": "a", "session_ttl": 1, "inputs": [], "outputs": {}}},
            InvalidReference,
            "inputs of the task is a JSON object",
        ),
    ],
)
def test_damaged_descriptions_are_refused(extras: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        PipesValues(Pipes(extras))  # type: ignore[arg-type]


def test_outputs_are_named_exactly() -> None:
    task = ExternalTask("s", 60.0, {}, {"a": OutputSlot("", "k"), "b": OutputSlot("", partitions={"1": "k"})})
    assert ExternalTask.parse(task.to_dict()) == task
    with pytest.raises(InvalidArgument, match="a, b: name one of them"):
        task.put(1)
    with pytest.raises(InvalidArgument, match="not 'c'"):
        task.put(1, "c")
    with pytest.raises(InvalidArgument, match="each of 1, not int"):
        task.put(1, "b")
