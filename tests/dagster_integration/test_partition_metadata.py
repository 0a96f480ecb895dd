"""What Dagster's pages show of each partition that a single run has written."""

# Annotations are not postponed here: Dagster looks at those of assets.

from typing import Any

import pandas as pd
import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetRecordsFilter,
    BackfillPolicy,
    DagsterInstance,
    FilesystemIOManager,
    StaticPartitionsDefinition,
    asset,
    materialize,
)
from entrepot_dagster import EntrepotIOManager, TieredIOManager, stored_values
from entrepot_dagster.values.reference_log import recorded_asset

pytestmark = pytest.mark.usefixtures("own_store")

REGIONS = StaticPartitionsDefinition(["north", "south", "west"])
RANGE = {"dagster/asset_partition_range_start": "north", "dagster/asset_partition_range_end": "west"}


def rows_of(region: str) -> pd.DataFrame:
    return pd.DataFrame({"region": [region] * (REGIONS.get_partition_keys().index(region) + 1)})


@asset(partitions_def=REGIONS, backfill_policy=BackfillPolicy.single_run())
def orders(context: AssetExecutionContext) -> dict[str, pd.DataFrame]:
    context.add_asset_metadata({"dagster/partition_row_count": 77}, partition_key="south")
    context.add_output_metadata({"entrepot/preview": "of my own", "mine": 1})
    return {region: rows_of(region) for region in context.partition_keys}


def metadata_of(instance: DagsterInstance, region: str) -> dict[str, Any]:
    records = instance.fetch_materializations(
        AssetRecordsFilter(asset_key=AssetKey("orders"), asset_partitions=[region]), limit=1
    ).records
    assert records[0].asset_materialization is not None
    return {name: entry.value for name, entry in records[0].asset_materialization.metadata.items()}


def test_each_partition_has_its_own_and_what_the_step_says_of_it(instance: DagsterInstance) -> None:
    assert materialize([orders], tags=RANGE, instance=instance, resources={"io_manager": EntrepotIOManager()}).success
    described = {region: metadata_of(instance, region) for region in REGIONS.get_partition_keys()}
    assert [described[region]["dagster/partition_row_count"] for region in described] == [1, 77, 3]
    assert [described[region]["entrepot/shape"] for region in described] == ["1 x 1", "2 x 1", "3 x 1"]
    assert len({described[region]["entrepot/id"] for region in described}) == 3
    for region, metadata in described.items():
        assert metadata["entrepot/reference"]["key"] == f"asset:orders@{region}"
        assert metadata["dagster/column_schema"].columns[0].name == "region"
        assert (metadata["entrepot/preview"], metadata["mine"]) == (
            "of my own",
            1,
        )


def test_a_durable_tier_has_it_too(instance: DagsterInstance, tmp_path: Any) -> None:
    tiers = TieredIOManager(store=EntrepotIOManager(), durable=FilesystemIOManager(base_dir=str(tmp_path)))
    assert materialize([orders], tags=RANGE, instance=instance, resources={"io_manager": tiers}).success
    assert metadata_of(instance, "west")["entrepot/shape"] == "3 x 1"
    assert metadata_of(instance, "west")["entrepot/durable_tier"] == "written"


def test_of_very_many_the_pages_show_what_they_have_in_common(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_values, "MAX_DESCRIBED_PARTITIONS", 2)
    assert materialize([orders], tags=RANGE, instance=instance, resources={"io_manager": EntrepotIOManager()}).success
    metadata = metadata_of(instance, "north")
    assert set(metadata["entrepot/references"]) == {"north", "south", "west"}
    assert "entrepot/id" not in metadata
    reference = recorded_asset(instance, AssetKey("orders"), "west")
    assert reference is not None
    assert reference.shape == (3, 1)
