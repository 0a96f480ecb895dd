"""Assets whose last value is not in the store: an older one is never read in its place, and nothing is left out."""

# Annotations are not postponed here: Dagster looks at those of assets.
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetMaterialization,
    AssetOut,
    BackfillPolicy,
    DagsterInstance,
    DailyPartitionsDefinition,
    FilesystemIOManager,
    IOManager,
    MaterializeResult,
    Output,
    OutputContext,
    StaticPartitionsDefinition,
    TimeWindowPartitionMapping,
    asset,
    build_output_context,
    build_resources,
    materialize,
    multi_asset,
)
from entrepot.errors import ObjectLost
from entrepot_dagster import EntrepotIOManager, EntrepotResource, TieredIOManager
from entrepot_dagster.background_writes import DurableReadFailed
from entrepot_dagster.values.keys import default_scope, key_of_asset
from entrepot_io.connections import close_all, session_store

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}
VALUE: list[Any] = [0]  # what assets have now
PARTS = StaticPartitionsDefinition(["a", "b"])
BOTH = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"}
DAYS = DailyPartitionsDefinition("2026-01-01")
ELSEWHERE = "was last materialized in run .* by another IO manager, and the store has an older value or none"
TOO_LARGE = 8_000_000  # numbers, of a store of 32 MiB


@asset
def source() -> Any:
    return VALUE[0]


@asset
def reader(source: Any) -> Any:
    return source


@asset
def optional_reader(source: int | None) -> str:
    return repr(source)


@asset(partitions_def=PARTS)
def part() -> Any:
    return VALUE[0]


@asset
def part_reader(part: dict[str, Any]) -> Any:
    return part


@asset(ins={"part": AssetIn(metadata={"allow_missing_partitions": True})})
def lenient_reader(part: dict[str, Any]) -> Any:
    return part


@asset(partitions_def=PARTS, backfill_policy=BackfillPolicy.single_run())
def sized(context: AssetExecutionContext) -> dict[str, np.ndarray]:
    return {"a": np.full(10, VALUE[0][0]), "b": np.full(VALUE[0][1], VALUE[0][0])}


@asset
def sized_reader(sized: dict[str, np.ndarray]) -> dict[str, int]:
    return {key: int(array[0]) for key, array in sized.items()}


def files(folder: Path) -> dict[str, Any]:
    return {"io_manager": FilesystemIOManager(base_dir=str(folder))}


def tiers(folder: Path, *, background: bool = False) -> dict[str, Any]:
    durable = FilesystemIOManager(base_dir=str(folder))
    return {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=durable, background=background)}


def write(definition: Any, value: Any, instance: DagsterInstance, resources: Any, **more: Any) -> None:
    VALUE[0] = value
    assert materialize([definition], instance=instance, resources=resources, **more).success


def read(upstream: Any, downstream: Any, instance: DagsterInstance, resources: Any) -> Any:
    result = materialize([upstream, downstream], selection=[downstream], instance=instance, resources=resources)
    return result.output_for_node(downstream.op.name)


def has(name: str, instance: DagsterInstance, resources: Any, **context: Any) -> bool:
    with build_resources(resources, instance=instance) as opened:
        return bool(opened.io_manager.has_output(build_output_context(asset_key=AssetKey(name), **context)))


def in_store(instance: DagsterInstance, name: str, partition: str | None = None) -> bool:
    own_key = key_of_asset(instance, [name], partition)
    store = session_store(None, default_scope(instance), own_key.session, None)
    return store.exists(store.derive(own_key.key))


# --- another IO manager has written it last


def test_an_older_value_is_not_read_after_another_io_manager(instance: DagsterInstance, tmp_path: Path) -> None:
    write(source, 1, instance, IO)
    assert has("source", instance, IO)
    write(source, 2, instance, files(tmp_path))
    for downstream in (reader, optional_reader):
        with pytest.raises(ObjectLost, match=f"^source {ELSEWHERE}.*TieredIOManager"):
            read(source, downstream, instance, IO)
    assert in_store(instance, "source")
    assert not has("source", instance, IO)
    assert read(source, reader, instance, files(tmp_path)) == 2
    write(source, 3, instance, IO)
    assert read(source, reader, instance, IO) == 3
    assert has("source", instance, IO)


def test_nor_is_an_older_partition(instance: DagsterInstance, tmp_path: Path) -> None:
    for key in ("a", "b"):
        write(part, 1, instance, IO, partition_key=key)
    write(part, 2, instance, files(tmp_path), partition_key="b")
    for downstream in (part_reader, lenient_reader):
        with pytest.raises(ObjectLost, match=rf"^part \(b\) {ELSEWHERE}"):
            read(part, downstream, instance, IO)
    assert has("part", instance, IO, partition_key="a", asset_partitions_def=PARTS)
    assert not has("part", instance, IO, partition_key="b", asset_partitions_def=PARTS)


@multi_asset(outs={"left": AssetOut(), "right": AssetOut()})
def pair() -> Any:
    yield Output(VALUE[0], "left")
    yield Output(-VALUE[0], "right")


@asset
def sides(left: int, right: int) -> Any:
    return left, right


def test_of_a_step_with_several_assets(instance: DagsterInstance, tmp_path: Path) -> None:
    write(pair, 1, instance, IO)
    assert read(pair, sides, instance, IO) == (1, -1)
    write(pair, 2, instance, files(tmp_path))
    with pytest.raises(ObjectLost, match=f"^(left|right) {ELSEWHERE}"):
        read(pair, sides, instance, IO)
    assert read(pair, sides, instance, tiers(tmp_path)) == (2, -2)


@multi_asset(outs={"written": AssetOut(), "unwritten": AssetOut()})
def half() -> Any:
    yield MaterializeResult("unwritten")
    yield MaterializeResult("written", value=VALUE[0])


@multi_asset(outs={"written": AssetOut(), "unwritten": AssetOut()}, name="half")
def whole() -> Any:
    yield Output(VALUE[0], "written")
    yield Output(VALUE[0], "unwritten")


@asset
def unwritten_reader(unwritten: int) -> int:
    return unwritten


@asset
def written_reader(written: int) -> int:
    return written


def test_a_step_that_writes_one_of_its_assets_only(instance: DagsterInstance, tmp_path: Path) -> None:
    write(whole, 1, instance, IO)
    write(half, 2, instance, files(tmp_path))
    assert read(whole, unwritten_reader, instance, IO) == 1
    with pytest.raises(ObjectLost, match=f"^written {ELSEWHERE}"):
        read(whole, written_reader, instance, IO)


@asset(name="source")
def without_value() -> MaterializeResult[Any]:
    return MaterializeResult(metadata={"rows": 1})


def test_materializations_without_a_value_leave_the_stored_one(instance: DagsterInstance, tmp_path: Path) -> None:
    write(source, 1, instance, IO)
    write(without_value, None, instance, IO)
    assert read(source, reader, instance, IO) == 1
    instance.report_runless_asset_event(AssetMaterialization("source"))
    assert read(source, reader, instance, IO) == 1
    assert has("source", instance, IO)
    # What counts is the last that has written something.
    write(source, 2, instance, files(tmp_path))
    write(without_value, None, instance, files(tmp_path))
    instance.report_runless_asset_event(AssetMaterialization("source"))
    with pytest.raises(ObjectLost, match=ELSEWHERE):
        read(source, reader, instance, IO)
    assert read(source, reader, instance, tiers(tmp_path)) == 2


@asset
def logs_materializations(context: AssetExecutionContext) -> int:
    context.log_event(AssetMaterialization("source"))
    return 1


def test_nor_does_one_that_a_step_logs_of_another_asset(instance: DagsterInstance, tmp_path: Path) -> None:
    write(source, 1, instance, IO)
    write(logs_materializations, None, instance, files(tmp_path))
    assert read(source, reader, instance, IO) == 1


def test_one_that_was_never_written_is_still_missing(instance: DagsterInstance) -> None:
    assert read(source, optional_reader, instance, IO) == "None"
    instance.report_runless_asset_event(AssetMaterialization("source"))
    assert read(source, optional_reader, instance, IO) == "None"
    write(part, 1, instance, IO, partition_key="a")
    assert read(part, lenient_reader, instance, IO) == {"a": 1}


# --- moving from files


@asset(
    partitions_def=DAYS,
    ins={"balance": AssetIn(partition_mapping=TimeWindowPartitionMapping(start_offset=-1, end_offset=-1))},
)
def balance(balance: int | None) -> int:
    return 100 if balance is None else balance + 1


def balance_of(day: str, instance: DagsterInstance, resources: Any) -> Any:
    result = materialize([balance], partition_key=day, instance=instance, resources=resources)
    return result.output_for_node("balance")


def test_assets_in_files_do_not_begin_again(instance: DagsterInstance, tmp_path: Path) -> None:
    assert balance_of("2026-01-01", instance, files(tmp_path)) == 100
    assert balance_of("2026-01-02", instance, files(tmp_path)) == 101
    with pytest.raises(ObjectLost, match=rf"^balance \(2026-01-02\) {ELSEWHERE}"):
        balance_of("2026-01-03", instance, IO)
    for day, expected in (("2026-01-03", 102), ("2026-01-04", 103)):
        assert balance_of(day, instance, tiers(tmp_path)) == expected


def test_optional_and_partitioned_inputs_in_files(instance: DagsterInstance, tmp_path: Path) -> None:
    write(source, 7, instance, files(tmp_path))
    with pytest.raises(ObjectLost, match=ELSEWHERE):
        read(source, optional_reader, instance, IO)
    assert read(source, optional_reader, instance, tiers(tmp_path)) == "7"
    write(part, 1, instance, files(tmp_path), partition_key="a")
    write(part, 2, instance, tiers(tmp_path), partition_key="b")
    with pytest.raises(ObjectLost, match=rf"^part \(a\) {ELSEWHERE}"):
        read(part, lenient_reader, instance, IO)
    assert read(part, lenient_reader, instance, tiers(tmp_path)) == {"a": 1, "b": 2}


@asset(deps=[part])
def by_pipes(context: AssetExecutionContext, entrepot: EntrepotResource) -> int:
    return len(entrepot.pipes_extras(context)["entrepot"]["inputs"])


def test_external_processes_get_all_partitions_or_none(instance: DagsterInstance, tmp_path: Path) -> None:
    resources = {**IO, "entrepot": EntrepotResource()}
    write(part, 1, instance, files(tmp_path), partition_key="a")
    assert read(part, by_pipes, instance, resources) == 0
    write(part, 2, instance, IO, partition_key="b")
    with pytest.raises(ObjectLost, match=rf"^part \(a\) {ELSEWHERE}"):
        read(part, by_pipes, instance, resources)


# --- scopes


def test_the_last_scope_counts(instance: DagsterInstance) -> None:
    former, latter = ({"io_manager": EntrepotIOManager(scope=scope)} for scope in ("former", "latter"))
    write(source, 1, instance, former)
    write(source, 2, instance, latter)
    for resources in (former, latter, IO):
        assert read(source, reader, instance, resources) == 2
        assert has("source", instance, resources)
    write(source, 3, instance, IO)
    assert read(source, reader, instance, former) == 3
    close_all()
    own_key = key_of_asset(instance, ["source"], None)
    store = session_store(None, default_scope(instance), own_key.session, None)
    assert store.delete(store.derive(own_key.key))
    with pytest.raises(ObjectLost, match="is no longer in the store"):
        read(source, reader, instance, former)


# --- the durable tier alone has it


@pytest.fixture
def small_store(daemon_in: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store is one of 32 MiB, which spills nothing."""
    folder = Path(tempfile.mkdtemp(prefix="es-"))
    small = daemon_in(folder, "32MiB", "--spill-path", "none")
    close_all()
    monkeypatch.setenv("ENTREPOT_ADDRESS", small.address)
    yield
    close_all()
    small.stop()
    shutil.rmtree(folder)


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_what_did_not_fit_is_read_from_the_durable_tier(
    background: bool,
    instance: DagsterInstance,
    tmp_path: Path,
    small_store: None,
) -> None:
    resources = tiers(tmp_path, background=background)
    write(source, np.full(10, 1), instance, resources)
    write(source, np.full(TOO_LARGE, 2), instance, resources)
    assert not in_store(instance, "source"), "the older value"
    with pytest.raises(ObjectLost, match=r"to the durable tier of TieredIOManager alone, as the store was full"):
        read(source, reader, instance, IO)
    result = materialize([source, first_of], selection=[first_of], instance=instance, resources=resources)
    assert result.output_for_node("first_of") == 2
    write(sized, (1, 10), instance, resources, tags=BOTH)
    write(sized, (2, TOO_LARGE), instance, resources, tags=BOTH)
    assert not in_store(instance, "sized", "b")
    assert read(sized, sized_reader, instance, resources) == {"a": 2, "b": 2}


@asset
def first_of(source: np.ndarray) -> int:
    return int(source[0])


def test_a_store_that_was_away(instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = os.environ["ENTREPOT_ADDRESS"]
    write(source, 1, instance, tiers(tmp_path))
    for key in ("a", "b"):
        write(part, 1, instance, tiers(tmp_path), partition_key=key)
    close_all()
    monkeypatch.setenv("ENTREPOT_ADDRESS", f"unix://{tmp_path}/nothing.sock")
    write(source, 2, instance, tiers(tmp_path))
    write(part, 2, instance, tiers(tmp_path), partition_key="b")
    close_all()
    monkeypatch.setenv("ENTREPOT_ADDRESS", address)
    assert in_store(instance, "source"), "the older value"
    assert read(source, reader, instance, tiers(tmp_path)) == 2
    assert read(part, part_reader, instance, tiers(tmp_path)) == {"a": 1, "b": 2}
    assert has("source", instance, tiers(tmp_path))
    assert not has("source", instance, IO)


def test_what_the_durable_io_manager_has_written_by_itself(instance: DagsterInstance, tmp_path: Path) -> None:
    write(source, 1, instance, tiers(tmp_path))
    write(source, 2, instance, files(tmp_path))
    assert read(source, reader, instance, tiers(tmp_path)) == 2


def test_what_the_store_alone_had_is_not_older_in_the_durable_tier(instance: DagsterInstance, tmp_path: Path) -> None:
    write(source, 1, instance, tiers(tmp_path))
    write(source, 2, instance, IO)
    assert read(source, reader, instance, tiers(tmp_path)) == 2
    own_key = key_of_asset(instance, ["source"], None)
    store = session_store(None, default_scope(instance), own_key.session, None)
    assert store.delete(store.derive(own_key.key))
    with pytest.raises(ObjectLost, match=r"durable tier does not have its last value .*written to the store alone"):
        read(source, reader, instance, tiers(tmp_path))
    assert not has("source", instance, tiers(tmp_path))


def test_a_partition_that_neither_tier_has_is_not_left_out(instance: DagsterInstance, tmp_path: Path) -> None:
    write(part, 1, instance, tiers(tmp_path / "own"), partition_key="a")
    write(part, 2, instance, files(tmp_path / "other"), partition_key="b")
    with pytest.raises(ObjectLost, match=r"^part \(b\) was last materialized in run .*FilesystemIOManager, has it"):
        read(part, lenient_reader, instance, tiers(tmp_path / "own"))
    write(part, None, instance, files(tmp_path / "own"), partition_key="b")
    assert read(part, lenient_reader, instance, tiers(tmp_path / "own")) == {"a": 1}, "as Dagster leaves out a None"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_daemon_that_is_stopped_is_a_store_that_is_away(instance: DagsterInstance, tmp_path: Path) -> None:
    resources = tiers(tmp_path)
    write(source, 1, instance, resources)
    with entrepot.connect(os.environ["ENTREPOT_ADDRESS"]) as store:
        pid = store.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        write(source, 2, instance, resources)  # by a process that is connected
    finally:
        os.kill(pid, signal.SIGCONT)
    assert read(source, reader, instance, resources) == 2
    write(source, 3, instance, resources)
    assert read(source, reader, instance, resources) == 3
    assert read(source, reader, instance, IO) == 3


def test_a_durable_file_that_was_not_written_to_its_end(instance: DagsterInstance, tmp_path: Path) -> None:
    write(source, list(range(100)), instance, files(tmp_path))
    file = tmp_path / "source"
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(
        DurableReadFailed, match=r"FilesystemIOManager, could not read source .*materialize it again"
    ) as caught:
        read(source, reader, instance, tiers(tmp_path))
    torn = caught.value.__cause__
    assert torn is not None
    assert type(torn).__name__ == "UnpicklingError"
    assert isinstance(torn.__cause__, ObjectLost)


class Yielding(IOManager):
    """Yields a materialization, as Dagster allows."""

    def handle_output(self, context: OutputContext, obj: Any) -> Any:
        yield AssetMaterialization(context.asset_key)

    def load_input(self, context: Any) -> Any:
        raise NotImplementedError


def test_io_managers_that_yield_their_own_materializations(instance: DagsterInstance) -> None:
    write(source, 1, instance, IO)
    write(source, 2, instance, {"io_manager": Yielding()})
    with pytest.raises(ObjectLost, match=ELSEWHERE):
        read(source, reader, instance, IO)
