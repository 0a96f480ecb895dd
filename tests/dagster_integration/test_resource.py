"""The resource: sessions of the store in assets."""

# Annotations are not postponed here: Dagster looks at those of assets.
import entrepot
import pyarrow as pa
import pytest
from dagster import AssetKey, DagsterInstance, EnvVar, asset, materialize
from entrepot.errors import InvalidArgument, StoreUnavailable
from entrepot_dagster import EntrepotIOManager, EntrepotResource
from entrepot_dagster.values.keys import default_scope

pytestmark = pytest.mark.usefixtures("own_store")


@asset
def orders(entrepot: EntrepotResource) -> entrepot.Collection:
    builder = entrepot.store().collection("orders")
    for number in range(3):
        builder.put(pa.table({"n": [number] * 10}), index=number)
    return builder.seal(3)


@asset
def rows(orders: pa.Table) -> int:
    return int(orders.num_rows)


@asset(deps=[AssetKey("orders")])
def notes(entrepot: EntrepotResource) -> None:
    entrepot.store("notes").put("seen", name="last", replace=True)


def test_assets_use_objects_by_name(instance: DagsterInstance) -> None:
    resources = {"entrepot": EntrepotResource(session_ttl="2h"), "io_manager": EntrepotIOManager()}
    result = materialize([orders, rows, notes], instance=instance, resources=resources)
    assert result.output_for_node("rows") == 30
    with entrepot.connect(scope=default_scope(instance)) as store:
        assert len(store.get_by_name("orders")) == 3
        assert store.session("notes").get_by_name("last") == "seen"
        (seconds,) = [info.ttl_seconds for info in store.sessions() if info.session == "notes"]
        assert seconds == 7200


def test_settings_of_the_resource(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SCOPE", "mine")
    with EntrepotResource(scope=EnvVar("MY_SCOPE"), session="tables").process_config_and_initialize_cm() as resource:
        store = resource.store()
        assert (store.scope, store.session_name) == ("mine", "tables")
    with pytest.raises(InvalidArgument, match="time to live"):
        EntrepotResource(session_ttl="soon")
    with pytest.raises(StoreUnavailable):
        EntrepotResource(address="unix:///nowhere/store.sock").store()
