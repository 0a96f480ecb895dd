"""Ranges of partitions, as a backfill in a single run has them, in the store and in a durable tier."""

# Annotations are not postponed here: Dagster looks at those of assets.

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    BackfillPolicy,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    FilesystemIOManager,
    IOManager,
    OutputContext,
    asset,
    materialize,
)
from entrepot.errors import ObjectLost
from entrepot_dagster import EntrepotIOManager, TieredIOManager
from entrepot_dagster.values.reference_log import recorded_asset
from entrepot_io.connections import session_store

pytestmark = pytest.mark.usefixtures("own_store")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
THREE_DAYS = {"dagster/asset_partition_range_start": "2026-01-01", "dagster/asset_partition_range_end": "2026-01-03"}
ONE_DAY = {"dagster/asset_partition_range_start": "2026-01-02", "dagster/asset_partition_range_end": "2026-01-02"}


@asset(partitions_def=DAYS, backfill_policy=BackfillPolicy.single_run())
def daily(context: AssetExecutionContext) -> dict[str, str]:
    return {day: day * 2 for day in context.partition_keys}


@asset
def all_days(daily: dict[str, str]) -> dict[str, str]:
    return daily


def lose(instance: DagsterInstance, partition: str) -> None:
    reference = recorded_asset(instance, AssetKey("daily"), partition)
    assert reference is not None
    assert session_store(None, reference.scope, reference.session, None).delete(reference.id)


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
@pytest.mark.parametrize("tags", [THREE_DAYS, ONE_DAY], ids=["three days", "one day"])
def test_each_partition_is_in_the_durable_tier(
    background: bool, tags: dict[str, str], instance: DagsterInstance, tmp_path: Path
) -> None:
    files = FilesystemIOManager(base_dir=str(tmp_path / "assets"))
    resources = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=files, background=background)}
    days = ["2026-01-02"] if tags is ONE_DAY else DAYS.get_partition_keys()
    assert materialize([daily], tags=tags, instance=instance, resources=resources).success
    assert sorted(path.name for path in (tmp_path / "assets/daily").iterdir()) == days
    in_files = Definitions(assets=[daily], resources={"io_manager": files})
    in_either = Definitions(assets=[daily], resources=resources)
    for day in days:
        assert in_files.load_asset_value("daily", partition_key=day, instance=instance) == day * 2
        lose(instance, day)
        assert in_either.load_asset_value("daily", partition_key=day, instance=instance) == day * 2
    if tags is THREE_DAYS:
        result = materialize([daily, all_days], selection=[all_days], instance=instance, resources=resources)
        assert result.output_for_node("all_days") == {day: day * 2 for day in days}


class Windows(IOManager):
    """Remembers what it is told of each output; one partition may not be written."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.written: list[tuple[str, str, datetime, Any]] = []

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        if context.asset_partition_key == self.refused:
            raise OSError("no space left on device")
        start = context.asset_partitions_time_window.start
        assert [context.asset_partition_key] == list(context.asset_partition_keys)
        self.written.append((context.asset_partition_key, context.asset_partition_key_range.end, start, obj))

    def load_input(self, context: Any) -> Any:
        raise AssertionError("nothing is read from here")


def test_it_is_told_of_one_partition_at_a_time(instance: DagsterInstance) -> None:
    """Its keys, their range and the time window, by which IO managers of databases replace rows."""
    windows = Windows()
    resources = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=windows)}
    assert materialize([daily], tags=THREE_DAYS, instance=instance, resources=resources).success
    days = DAYS.get_partition_keys()
    assert [(day, end, obj) for day, end, _, obj in windows.written] == [(day, day, day * 2) for day in days]
    assert [start.strftime("%Y-%m-%d") for _, _, start, _ in windows.written] == days


def test_a_full_disk_after_the_first_partition(instance: DagsterInstance) -> None:
    """All are in the store; none of them is ever read from a tier that may have older ones."""
    windows = Windows(refused="2026-01-02")
    tiers = TieredIOManager(store=EntrepotIOManager(), durable=windows, background=True)
    assert materialize([daily], tags=THREE_DAYS, instance=instance, resources={"io_manager": tiers}).success
    assert [day for day, *_ in windows.written] == ["2026-01-01"]
    resources = {"io_manager": tiers}
    result = materialize([daily, all_days], selection=[all_days], instance=instance, resources=resources)
    assert result.output_for_node("all_days") == {day: day * 2 for day in DAYS.get_partition_keys()}
    for day in DAYS.get_partition_keys():
        lose(instance, day)
    with pytest.raises(ObjectLost, match="no space left on device"):
        materialize([daily, all_days], selection=[all_days], instance=instance, resources=resources)
