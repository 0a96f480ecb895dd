"""Steps that reserve memory in the store: the option ``reserve`` and the tag ``entrepot/reserve``."""

import logging
from typing import Any

import numpy as np
import pytest
from dagster import AssetExecutionContext, DagsterInstance, Failure, RetryPolicy, asset, job, materialize, op
from entrepot.errors import InvalidArgument
from entrepot_dagster import EntrepotIOManager
from entrepot_io.connections import close_all, scope_store

pytestmark = pytest.mark.usefixtures("own_store")
MIB = 1 << 20
seen: dict[str, int] = {}


@pytest.fixture(autouse=True)
def _nothing_seen() -> Any:
    seen.clear()
    yield
    close_all()


def held() -> int:
    return int(scope_store(None, "observer").status()["reservations"]["bytes"])


@asset
def source() -> Any:
    seen["source"] = held()
    return np.ones(2 * MIB)


@asset
def doubled(source: Any) -> Any:
    seen["doubled"] = held()
    return source * 2


@asset(op_tags={"entrepot/reserve": "5MiB"})
def tagged(source: Any) -> Any:
    seen["tagged"] = held()
    return source + 1


@asset(op_tags={"entrepot/reserve": "off"})
def untouched(source: Any) -> Any:
    seen["untouched"] = held()
    return float(source[0])


ASSETS = [source, doubled, tagged, untouched]


@pytest.mark.parametrize("setting", ["argument", "variable"])
def test_a_step_holds_its_reservation_from_its_first_input_to_its_end(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting == "variable":
        monkeypatch.setenv("ENTREPOT_RESERVE", "32MiB")
    manager = EntrepotIOManager(reserve="32MiB") if setting == "argument" else EntrepotIOManager()
    assert materialize(ASSETS, resources={"io_manager": manager}).success
    assert seen == {"source": 0, "doubled": 32 * MIB, "tagged": 5 * MIB, "untouched": 0}
    assert held() == 0


def test_by_default_only_tagged_ops_reserve() -> None:
    assert materialize(ASSETS, resources={"io_manager": EntrepotIOManager()}).success
    assert seen == {"source": 0, "doubled": 0, "tagged": 5 * MIB, "untouched": 0}


def test_steps_reserve_what_they_stored_in_earlier_runs() -> None:
    instance = DagsterInstance.ephemeral()
    manager = EntrepotIOManager(reserve="measured")
    for _ in range(2):
        assert materialize(ASSETS, resources={"io_manager": manager}, instance=instance).success
    assert 17 * MIB < seen["doubled"] < 18 * MIB, "16 MiB and a tenth"


@asset(retry_policy=RetryPolicy(max_retries=1))
def failing(context: AssetExecutionContext, source: Any) -> Any:
    seen[f"failing {context.retry_number}"] = held()
    if context.retry_number == 0:
        raise RuntimeError("once")
    raise Failure("for good", allow_retries=False)


def test_a_step_that_fails_gives_its_reservation_back() -> None:
    manager = EntrepotIOManager(reserve="32MiB")
    assert not materialize([source, failing], resources={"io_manager": manager}, raise_on_error=False).success
    assert seen == {"source": 0, "failing 0": 32 * MIB, "failing 1": 32 * MIB}
    assert held() == 0


def test_a_step_that_gets_none_runs_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    manager = EntrepotIOManager(reserve="200MiB", reserve_timeout="0")
    with scope_store(None, "observer").reserve("100MiB"), caplog.at_level(logging.WARNING, logger="entrepot_io"):
        assert materialize([source, doubled], resources={"io_manager": manager}).success
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("entrepot_io")]
    assert len(messages) == 2, "one for each step"
    assert "task 'doubled' runs without a reservation" in messages[1]


def test_an_op_without_outputs_ends_its_reservation() -> None:
    @op
    def make() -> Any:
        return np.ones(MIB)

    @op
    def use(value: Any) -> None:
        seen["use"] = held()

    @job(resource_defs={"io_manager": EntrepotIOManager(reserve="32MiB")})
    def both() -> None:
        use(make())

    assert both.execute_in_process().success
    assert seen == {"use": 32 * MIB}
    assert held() == 0


def test_a_malformed_setting_is_reported_when_definitions_are_loaded() -> None:
    with pytest.raises(InvalidArgument, match="reserve must be off, measured or a size"):
        EntrepotIOManager(reserve="much")
