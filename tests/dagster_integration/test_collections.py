"""An asset that is a collection: written in place as a reference, read by ID, whole or in part."""

import entrepot
import pyarrow as pa
import pytest
from dagster import AssetKey, DagsterInstance, JsonMetadataValue, asset, materialize
from entrepot.errors import ObjectLost
from entrepot_dagster import EntrepotIOManager
from entrepot_io.reference import Reference

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}


@asset
def days() -> entrepot.Collection:
    with entrepot.connect(scope="tests") as store:
        builder = store.collection("days")
        for day in range(4):
            builder.put(pa.table({"x": [day] * 1000}), index=day)
        return builder.seal()


@asset
def weekend(days: entrepot.Collection) -> entrepot.Collection:
    return days[2:]


@asset
def total(days: entrepot.Collection, weekend: entrepot.Collection) -> tuple[int, int]:
    return sum(days.to_arrow()["x"].to_pylist()), sum(weekend.to_arrow()["x"].to_pylist())


def test_an_asset_that_is_a_collection(instance: DagsterInstance) -> None:
    result = materialize([days, weekend, total], instance=instance, resources=IO)
    assert result.output_for_node("total") == (6000, 5000)
    event = instance.get_latest_materialization_event(AssetKey(["days"]))
    assert event is not None
    assert event.asset_materialization is not None
    entry = event.asset_materialization.metadata["entrepot/reference"]
    assert isinstance(entry, JsonMetadataValue)
    assert Reference.parse(entry.data).type == "entrepot.Collection"
    later = materialize([days, weekend, total], selection=[total], instance=instance, resources=IO)
    assert later.output_for_node("total") == (6000, 5000)


def test_a_deleted_collection_is_lost(instance: DagsterInstance) -> None:
    materialize([days, weekend], instance=instance, resources=IO)
    with entrepot.connect(scope="tests") as store:
        store.get_by_name("days").delete()
    with pytest.raises(ObjectLost, match=r"'days' .* is no longer available"):
        materialize([days, weekend, total], selection=[total], instance=instance, resources=IO)
