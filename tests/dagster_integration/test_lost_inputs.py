"""Steps with a retry policy whose input is lost: a retry could not bring it back, so there is none."""

# Annotations are not postponed here: Dagster looks at those of ops and assets.
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    DagsterEventType,
    DagsterInstance,
    ExecuteInProcessResult,
    FilesystemIOManager,
    JsonMetadataValue,
    OpExecutionContext,
    RetryPolicy,
    asset,
    job,
    materialize,
    op,
)
from entrepot_dagster import EntrepotIOManager, TieredIOManager, store_failure_hook
from entrepot_dagster.values.keys import default_scope, key_of_output
from entrepot_dagster.values.lost_inputs import LOST
from entrepot_io.connections import session_store
from entrepot_io.reference import Reference

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}
RETRIES = 2
READS: list[str] = []  # of those IO managers that count them


class Counting(EntrepotIOManager):
    """Counts the attempts to read."""

    def load_input(self, context: Any) -> Any:
        READS.append(context.name)
        return super().load_input(context)


@pytest.fixture(autouse=True)
def no_reads() -> None:
    READS.clear()


@op
def numbers() -> np.ndarray:
    return np.arange(1000)


@op
def lose(context: OpExecutionContext, values: np.ndarray) -> int:
    output_key = key_of_output([context.run_id, "numbers", "result"])
    store = session_store(None, default_scope(context.instance), output_key.session, None)
    assert store.delete(store.derive(output_key.key))
    return 1


@op(retry_policy=RetryPolicy(max_retries=RETRIES))
def read(values: np.ndarray, after: int) -> int:
    raise AssertionError("its input is lost")


@op
def read_by_policy_of_job(values: np.ndarray, after: int) -> int:
    raise AssertionError("its input is lost")


@job(resource_defs={"io_manager": Counting()}, hooks={store_failure_hook})
def of_op() -> None:
    values = numbers()
    read(values, lose(values))


@job(
    resource_defs={"io_manager": Counting()},
    op_retry_policy=RetryPolicy(max_retries=RETRIES),
    hooks={store_failure_hook},
)
def of_job() -> None:
    values = numbers()
    read_by_policy_of_job(values, lose(values))


def failure_of(result: ExecuteInProcessResult) -> Any:
    """The data of the only failed step's event."""
    (event,) = [event for event in result.all_events if event.event_type is DagsterEventType.STEP_FAILURE]
    return event.step_failure_data


def retries_of(result: ExecuteInProcessResult) -> list[str | None]:
    return [event.step_key for event in result.all_events if event.event_type is DagsterEventType.STEP_UP_FOR_RETRY]


def chain_of(error: Any) -> list[str]:
    names = []
    while error is not None:
        names.append(error.cls_name)
        error = error.cause
    return names


@pytest.mark.parametrize("job_definition", [of_op, of_job], ids=["policy of an op", "policy of a job"])
def test_an_output_that_is_lost_is_not_asked_for_again(job_definition: Any, instance: DagsterInstance) -> None:
    result = job_definition.execute_in_process(instance=instance, raise_on_error=False)
    assert retries_of(result) == []
    assert READS == ["values", "values"], "one of the step that loses it, one of the step that reads it"
    failure = failure_of(result)
    assert chain_of(failure.error)[:2] == ["Failure", "ObjectLost"]
    assert "is no longer in the store" in failure.user_failure_data.description
    assert "re-execute the run from the step numbers" in failure.user_failure_data.description
    assert failure.user_failure_data.metadata[LOST].value == "numbers/result"
    lines = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert [line for line in lines if line.startswith("entrepot: read") and ": ObjectLost: " in line]


@asset
def orders() -> np.ndarray:
    return np.arange(1000)


@asset(retry_policy=RetryPolicy(max_retries=RETRIES))
def total(orders: np.ndarray) -> int:
    return int(orders.sum())


def reference_of(instance: DagsterInstance) -> Reference:
    event = instance.get_latest_materialization_event(AssetKey("orders"))
    assert event is not None
    assert event.asset_materialization is not None
    return Reference.parse(event.asset_materialization.metadata["entrepot/reference"].value)


def lose_orders(instance: DagsterInstance) -> None:
    reference = reference_of(instance)
    assert session_store(None, reference.scope, reference.session, None).delete(reference.id)


def read_orders(instance: DagsterInstance, resources: Any = IO) -> ExecuteInProcessResult:
    return materialize([orders, total], selection=[total], instance=instance, resources=resources, raise_on_error=False)


def test_an_asset_that_is_lost_is_not_asked_for_again(instance: DagsterInstance) -> None:
    materialize([orders], instance=instance, resources=IO)
    lose_orders(instance)
    result = read_orders(instance)
    assert retries_of(result) == []
    failure = failure_of(result)
    assert failure.user_failure_data.metadata[LOST].value == "orders"
    assert "materialize orders again, then re-execute from failure" in failure.user_failure_data.description
    materialize([orders], instance=instance, resources=IO)
    assert read_orders(instance).output_for_node("total") == 1000 * 999 // 2


def test_one_that_was_never_written_may_be_written_meanwhile(instance: DagsterInstance) -> None:
    assert retries_of(read_orders(instance)) == ["total"] * RETRIES


def test_one_of_another_host_may_be_reached_by_a_retry(instance: DagsterInstance) -> None:
    materialize([orders], instance=instance, resources=IO)
    elsewhere = {**reference_of(instance).to_dict(), "host": "node-b", "instance": "0" * 32}
    metadata = {"entrepot/reference": JsonMetadataValue(elsewhere)}
    instance.report_runless_asset_event(AssetMaterialization("orders", metadata=metadata))
    result = read_orders(instance)
    assert retries_of(result) == ["total"] * RETRIES
    assert "lives on host 'node-b'" in str(failure_of(result).error)


def test_a_durable_tier_that_has_it_is_read(instance: DagsterInstance, tmp_path: Path) -> None:
    durable = FilesystemIOManager(base_dir=str(tmp_path / "files"))
    tiers = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=durable)}
    materialize([orders], instance=instance, resources=tiers)
    lose_orders(instance)
    assert read_orders(instance, tiers).output_for_node("total") == 1000 * 999 // 2


def test_a_durable_tier_that_could_not_write_it(instance: DagsterInstance, tmp_path: Path) -> None:
    (tmp_path / "files").write_text("a file where a folder should be")
    durable = FilesystemIOManager(base_dir=str(tmp_path / "files"))
    tiers = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=durable, background=True)}
    materialize([orders], instance=instance, resources=tiers, raise_on_error=False)
    assert read_orders(instance, tiers).output_for_node("total") == 1000 * 999 // 2
    lose_orders(instance)
    result = read_orders(instance, tiers)
    assert retries_of(result) == []
    assert chain_of(failure_of(result).error)[:2] == ["Failure", "ObjectLost"]
