"""Nodes that reserve memory in the store: the option ``reserve``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from entrepot_io.connections import scope_store
from entrepot_kedro import catalog_config
from entrepot_kedro.hooks import EntrepotHooks
from kedro.framework.hooks.manager import _create_hook_manager
from kedro.io import DataCatalog
from kedro.pipeline import node, pipeline
from kedro.runner import SequentialRunner, ThreadRunner

pytestmark = pytest.mark.usefixtures("in_scope_tests")

SCOPE = "tests"
MIB = 1 << 20
CATALOG = {"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}


def held() -> int:
    return int(scope_store(None, SCOPE).status()["reservations"]["bytes"])


def run(runner: Any, function: Callable[[Any], Any]) -> dict[str, int]:
    """Run two nodes; return what was reserved while each of them ran."""
    seen: dict[str, int] = {}

    def first() -> Any:
        seen["first"] = held()
        return np.ones(MIB), 1

    def second(large: Any, small: int) -> Any:
        seen["second"] = held()
        return function(large)

    nodes = [
        node(first, None, ["large", "small"], name="first"),
        node(second, ["large", "small"], "result", name="second"),
    ]
    hooks = _create_hook_manager()
    hooks.register(EntrepotHooks())
    try:
        runner.run(pipeline(nodes), DataCatalog.from_config(catalog_config(CATALOG)), hooks)
    except ValueError:
        hooks.hook.on_pipeline_error(
            error=ValueError(),
            run_params={},
            pipeline=pipeline(nodes),
            catalog=DataCatalog.from_config(catalog_config(CATALOG)),
        )
    return seen


@pytest.mark.parametrize("runner", [SequentialRunner, ThreadRunner], ids=["sequential", "threads"])
def test_a_node_holds_its_reservation_until_its_outputs_are_saved(
    runner: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_RESERVE", "32MiB")
    assert run(runner(), lambda large: large * 2) == {"first": 32 * MIB, "second": 32 * MIB}
    assert held() == 0


def test_nodes_reserve_what_they_stored_in_earlier_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_RESERVE", "measured")
    assert run(SequentialRunner(), lambda large: np.tile(large, 2)) == {"first": 0, "second": 0}
    again = run(SequentialRunner(), lambda large: np.tile(large, 2))
    assert 8 * MIB < again["first"] < 9 * MIB
    assert 17 * MIB < again["second"] < 18 * MIB
    assert held() == 0


def test_a_node_that_fails_gives_its_reservation_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_RESERVE", "32MiB")

    def fail(large: Any) -> Any:
        raise ValueError("no")

    assert run(SequentialRunner(), fail) == {"first": 32 * MIB, "second": 32 * MIB}
    assert held() == 0


def test_by_default_nothing_is_reserved() -> None:
    assert run(SequentialRunner(), lambda large: large) == {"first": 0, "second": 0}
