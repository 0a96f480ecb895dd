"""Assets: overwritten in place, partitioned as with Dagster's own file-based IO managers, found by later runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetMaterialization,
    BackfillPolicy,
    DagsterEventType,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    EnvVar,
    JsonMetadataValue,
    LastPartitionMapping,
    MultiPartitionKey,
    MultiPartitionsDefinition,
    StaticPartitionsDefinition,
    TimeWindowPartitionMapping,
    asset,
    materialize,
)
from dagster_shared.libraries import DagsterLibraryRegistry
from entrepot.errors import InvalidArgument, InvalidReference, ObjectLost, ObjectNotFound
from entrepot_dagster import EntrepotIOManager
from entrepot_dagster.values.keys import default_scope, key_of_asset
from entrepot_io.connections import close_all, session_store
from entrepot_io.reference import Reference
from value_memory_tries import until_nothing_is_refused

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}
DAYS = StaticPartitionsDefinition(["mon", "tue", "wed"])


@asset(key_prefix=["raw"])
def orders() -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(10_000)})


@asset(ins={"orders": AssetIn(key_prefix=["raw"])})
def total(orders: pd.DataFrame) -> int:
    return int(orders["x"].sum())


def recorded_reference(instance: DagsterInstance, key: list[str]) -> Reference:
    event = instance.get_latest_materialization_event(AssetKey(key))
    assert event is not None
    assert event.asset_materialization is not None
    entry = event.asset_materialization.metadata["entrepot/reference"]
    assert isinstance(entry, JsonMetadataValue)
    return Reference.parse(entry.data)


def lose_asset(instance: DagsterInstance, path: list[str], partition: str | None = None) -> None:
    """Delete an asset behind Dagster's back."""
    asset_key = key_of_asset(instance, path, partition)
    store = session_store(None, default_scope(instance), asset_key.session, None)
    assert store.delete(store.derive(asset_key.key))


def test_later_runs_find_assets(instance: DagsterInstance) -> None:
    assert materialize([orders], instance=instance, resources=IO).success
    result = materialize([orders, total], selection=[total], instance=instance, resources=IO)
    assert result.output_for_node("total") == 10_000 * 9_999 // 2
    reference = recorded_reference(instance, ["raw", "orders"])
    assert (reference.session, reference.key, reference.shape) == ("", "asset:raw/orders", (10_000, 1))


@asset(metadata={"entrepot/locality_set": {"name": "features", "reading": "loop_sequential"}})
def features() -> Any:
    return np.arange(10_000)


@asset(metadata={"entrepot/locality_set": 5})
def wrong() -> Any:
    return np.arange(10_000)


def test_metadata_name_a_locality_set(instance: DagsterInstance) -> None:
    assert materialize([features], instance=instance, resources=IO).success
    reference = recorded_reference(instance, ["features"])
    store = session_store(None, reference.scope, reference.session, None)
    assert store.info(reference.id).locality_set == "features"
    assert [locality_set.reading for locality_set in store.locality_sets() if locality_set.name == "features"] == [
        "loop_sequential"
    ]
    with pytest.raises(InvalidArgument, match="not 5"):
        materialize([wrong], instance=instance, resources=IO)


def test_assets_are_written_in_place(instance: DagsterInstance) -> None:
    materialize([orders], instance=instance, resources=IO)
    first = recorded_reference(instance, ["raw", "orders"])
    materialize([orders], instance=instance, resources=IO)
    second = recorded_reference(instance, ["raw", "orders"])
    assert first.id == second.id
    assert first.generation != second.generation


def test_values_are_loaded_outside_runs(instance: DagsterInstance) -> None:
    materialize([orders], instance=instance, resources=IO)
    value = Definitions(assets=[orders], resources=IO).load_asset_value(AssetKey(["raw", "orders"]), instance=instance)
    assert isinstance(value, pd.DataFrame)
    assert len(value) == 10_000


def test_without_an_instance() -> None:
    assert materialize([orders, total], resources=IO).output_for_node("total") == 10_000 * 9_999 // 2


def test_assets_of_an_ephemeral_instance_end() -> None:
    result = materialize([orders], resources=IO)
    event: Any = next(e for e in result.all_events if e.event_type == DagsterEventType.HANDLED_OUTPUT)
    reference = Reference.parse(event.event_specific_data.metadata["entrepot/reference"].data)
    assert reference.session.startswith("dagster/ephemeral/")


def test_instances_do_not_mix(instance: DagsterInstance) -> None:
    with DagsterInstance.ephemeral() as first, DagsterInstance.ephemeral() as second:
        assert key_of_asset(first, ["x"], None).session == key_of_asset(first, ["x"], None).session
        assert key_of_asset(first, ["x"], None).session != key_of_asset(second, ["x"], None).session
        assert default_scope(first) != default_scope(instance)
    assert default_scope(instance) == default_scope(instance)


def test_a_lost_asset_is_an_error(instance: DagsterInstance) -> None:
    materialize([orders], instance=instance, resources=IO)
    lose_asset(instance, ["raw", "orders"])
    with pytest.raises(ObjectLost, match=r"'asset:raw/orders' .* is no longer in the store"):
        materialize([orders, total], selection=[total], instance=instance, resources=IO)


def test_an_asset_that_was_never_written(instance: DagsterInstance) -> None:
    with pytest.raises(ObjectNotFound, match="it was never written"):
        materialize([orders, total], selection=[total], instance=instance, resources=IO)


def report_materialization(instance: DagsterInstance, entry: Any) -> None:
    """Make the event log say that a later run, elsewhere, has materialized the asset."""
    metadata = {"entrepot/reference": JsonMetadataValue(entry)}
    instance.report_runless_asset_event(AssetMaterialization(AssetKey(["raw", "orders"]), metadata=metadata))


def test_an_asset_of_another_host_is_never_read_from_here(instance: DagsterInstance) -> None:
    """This host's store still has an older version under the same ID."""
    materialize([orders], instance=instance, resources=IO)
    report_materialization(
        instance, replace(recorded_reference(instance, ["raw", "orders"]), instance="f" * 32, host="node-b").to_dict()
    )
    with pytest.raises(ObjectLost, match="lives on host 'node-b'"):
        materialize([orders, total], selection=[total], instance=instance, resources=IO)


def test_a_damaged_record_is_named(instance: DagsterInstance) -> None:
    materialize([orders], instance=instance, resources=IO)
    report_materialization(
        instance, json.loads(json.dumps(recorded_reference(instance, ["raw", "orders"]).to_dict())) | {"instance": "?"}
    )
    with pytest.raises(InvalidReference, match="'instance' is '\\?'"):
        materialize([orders, total], selection=[total], instance=instance, resources=IO)


@asset(partitions_def=DAYS)
def daily(context: AssetExecutionContext) -> np.ndarray:
    return np.full(1000, DAYS.get_partition_keys().index(context.partition_key))


@asset(partitions_def=DAYS)
def same_day(daily: np.ndarray) -> int:
    return int(daily.sum())


@asset
def all_days(daily: dict[str, Any]) -> dict[str, int]:
    return {day: int(values.sum()) for day, values in daily.items()}


@asset(ins={"daily": AssetIn(metadata={"allow_missing_partitions": True})})
def some_days(daily: dict[str, Any]) -> list[str]:
    return list(daily)


@asset(ins={"daily": AssetIn(partition_mapping=LastPartitionMapping())})
def last_day(daily: np.ndarray) -> int:
    return int(daily.sum())


def make_days(instance: DagsterInstance, *days: str) -> None:
    for day in days:
        assert materialize([daily], partition_key=day, instance=instance, resources=IO).success


def test_one_partition(instance: DagsterInstance) -> None:
    make_days(instance, "mon", "tue", "wed")
    result = materialize([daily, same_day], selection=[same_day], partition_key="tue", instance=instance, resources=IO)
    assert result.output_for_node("same_day") == 1000
    result = materialize([daily, last_day], selection=[last_day], instance=instance, resources=IO)
    assert result.output_for_node("last_day") == 2000


def test_all_partitions(instance: DagsterInstance) -> None:
    make_days(instance, "mon", "tue", "wed")
    result = materialize([daily, all_days], selection=[all_days], instance=instance, resources=IO)
    assert result.output_for_node("all_days") == {"mon": 0, "tue": 1000, "wed": 2000}


def test_a_partition_that_was_never_written(instance: DagsterInstance) -> None:
    make_days(instance, "mon", "wed")
    with pytest.raises(ObjectNotFound, match="asset:daily@tue"):
        materialize([daily, all_days], selection=[all_days], instance=instance, resources=IO)
    result = materialize([daily, some_days], selection=[some_days], instance=instance, resources=IO)
    assert sorted(result.output_for_node("some_days")) == ["mon", "wed"]


def test_a_lost_partition_is_never_skipped(instance: DagsterInstance) -> None:
    """Allowing missing partitions covers those never written, not those that were lost."""
    make_days(instance, "mon", "tue", "wed")
    lose_asset(instance, ["daily"], "tue")
    with pytest.raises(ObjectLost, match="asset:daily@tue"):
        materialize([daily, some_days], selection=[some_days], instance=instance, resources=IO)


@asset(partitions_def=DAYS, backfill_policy=BackfillPolicy.single_run())
def at_once() -> int:
    return 1


@asset(partitions_def=DAYS, backfill_policy=BackfillPolicy.single_run())
def each_day(context: AssetExecutionContext) -> dict[str, Any]:
    return {day: np.full(1000, DAYS.get_partition_keys().index(day)) for day in context.partition_keys}


@asset(partitions_def=DAYS)
def one_day(each_day: Any) -> int:
    return int(each_day.sum())


ALL_DAYS = {"dagster/asset_partition_range_start": "mon", "dagster/asset_partition_range_end": "wed"}


def test_one_value_for_several_partitions_is_refused(instance: DagsterInstance) -> None:
    with pytest.raises(InvalidArgument, match=r"covers 3 partitions: return a dictionary .* of mon, tue, wed, not int"):
        materialize([at_once], tags=ALL_DAYS, instance=instance, resources=IO)


def test_a_backfill_in_a_single_run_writes_each_partition(instance: DagsterInstance) -> None:
    assert materialize([each_day], tags=ALL_DAYS, instance=instance, resources=IO).success
    for day, total in (("mon", 0), ("wed", 2000)):
        result = materialize(
            [each_day, one_day], selection=[one_day], partition_key=day, instance=instance, resources=IO
        )
        assert result.output_for_node("one_day") == total
    lose_asset(instance, ["each_day"], "tue")
    with pytest.raises(ObjectLost, match="asset:each_day@tue"):
        materialize([each_day, one_day], selection=[one_day], partition_key="tue", instance=instance, resources=IO)


GRID = MultiPartitionsDefinition({"day": DAYS, "region": StaticPartitionsDefinition(["eu", "us"])})


@asset(partitions_def=GRID)
def cell(context: AssetExecutionContext) -> str:
    return str(context.partition_key)


@asset(partitions_def=GRID)
def next_cell(cell: str) -> str:
    return cell + "!"


def test_partitions_of_two_dimensions(instance: DagsterInstance) -> None:
    for region in ("eu", "us"):
        key = MultiPartitionKey({"day": "mon", "region": region})
        result = materialize([cell, next_cell], partition_key=key, instance=instance, resources=IO)
        assert result.output_for_node("next_cell") == f"mon|{region}!"


def test_settings_from_config_and_environment(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SCOPE", "from a variable")
    io = {"io_manager": EntrepotIOManager(scope=EnvVar("STORE_SCOPE"), session_ttl_seconds=60)}
    materialize([orders], instance=instance, resources=io)
    assert recorded_reference(instance, ["raw", "orders"]).scope == "from a variable"


def test_the_library_is_registered() -> None:
    assert DagsterLibraryRegistry.get()["entrepot-dagster"] == "0.1.0"


# --- explicitly configured scopes


def test_assets_of_a_named_scope_outlive_an_ephemeral_instance() -> None:
    resources = {"io_manager": EntrepotIOManager(scope="shared")}
    assert materialize([orders], resources=resources).success
    loaded: Any = Definitions(assets=[orders], resources=resources).load_asset_value(["raw", "orders"])
    assert int(loaded["x"].sum()) == 10_000 * 9_999 // 2


def test_assets_of_an_unnamed_scope_end_with_the_ephemeral_instance() -> None:
    assert materialize([orders], resources=IO).success
    with pytest.raises(ObjectNotFound):
        Definitions(assets=[orders], resources=IO).load_asset_value(["raw", "orders"])


def test_a_self_dependency_over_two_calls() -> None:
    days = DailyPartitionsDefinition(start_date="2026-01-01")
    yesterday = TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    @asset(
        partitions_def=days,
        ins={"running": AssetIn("running", partition_mapping=yesterday)},
    )
    def running(context: AssetExecutionContext, running: Any) -> int:
        return 1 if running is None else int(running) + 1

    resources = {"io_manager": EntrepotIOManager(scope="shared")}
    assert materialize([running], resources=resources, partition_key="2026-01-01").success
    second = materialize([running], resources=resources, partition_key="2026-01-02")
    assert second.output_for_node("running") == 2


def test_a_scope_shared_by_deployments_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    resources = {"io_manager": EntrepotIOManager(scope="shared")}
    caplog.set_level("WARNING")
    for name in ("one", "other"):
        home = tmp_path / name
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        monkeypatch.setenv("DAGSTER_HOME", str(home))
        with DagsterInstance.get() as instance:
            for _ in range(2):
                assert materialize([orders], instance=instance, resources=resources).success
        warnings = [record for record in caplog.records if "is shared with the deployment" in record.getMessage()]
        assert len(warnings) == (0 if name == "one" else 1)
        if warnings:
            assert str(tmp_path / "one") in warnings[0].getMessage()


# --- settings


def test_a_wrong_setting_is_refused_where_it_is_defined() -> None:
    with pytest.raises(InvalidArgument, match="'wrong'"):
        EntrepotIOManager(copy="wrong")
    with pytest.raises(InvalidArgument, match="'soon'"):
        EntrepotIOManager(session_ttl_seconds="soon")


def test_every_field_comes_from_a_variable(monkeypatch: pytest.MonkeyPatch, daemon: Any) -> None:
    for name, value in {
        "MY_ADDRESS": daemon.address,
        "MY_SCOPE": "mine",
        "MY_COPY": "on_write",
        "MY_TTL": "2h",
        "MY_POLICY": "off",
    }.items():
        monkeypatch.setenv(name, value)
    manager = EntrepotIOManager(
        address=EnvVar("MY_ADDRESS"),
        scope=EnvVar("MY_SCOPE"),
        copy=EnvVar("MY_COPY"),
        session_ttl_seconds=EnvVar("MY_TTL"),
        policy=EnvVar("MY_POLICY"),
    )
    settings = manager.process_config_and_initialize()._settings()
    assert (settings.address, settings.scope, settings.copy) == (daemon.address, "mine", "on_write")
    assert settings.session_ttl == 7200
    assert EntrepotIOManager(session_ttl_seconds=EnvVar.int("MY_TTL")) is not None
    monkeypatch.delenv("MY_TTL")
    with pytest.raises(InvalidArgument, match="MY_TTL, which is not set"):
        manager.process_config_and_initialize()


@asset
def large() -> Any:
    return np.arange(500_000)


@asset
def larger(large: Any) -> Any:
    return np.concatenate([large, large])


@pytest.mark.parametrize("setting", ["argument", "variable", "none", "argument off", "variable off"])
def test_values_are_made_in_the_store_unless_that_is_off(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if setting.startswith("variable"):
        monkeypatch.setenv("ENTREPOT_ALLOCATE", "0" if setting.endswith("off") else "1")
    argument = not setting.endswith("off") if setting.startswith("argument") else None
    manager = EntrepotIOManager(allocate=argument)
    instance = DagsterInstance.ephemeral()
    result, sealed = until_nothing_is_refused(
        lambda: materialize([large, larger], resources={"io_manager": manager}, instance=instance)
    )
    assert sealed == (0 if setting.endswith("off") else 2)
    np.testing.assert_array_equal(result.asset_value("larger"), np.tile(np.arange(500_000), 2))
    close_all()
