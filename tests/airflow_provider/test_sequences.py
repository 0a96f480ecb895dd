"""Reading the results of mapped tasks in batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_steps import StepResults

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

DAGS = Path(__file__).with_name("sequence_dags.py")
INSTANCES = 6
REQUESTS = {"GetXComSequenceItem", "GetXComSequenceSlice"}


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["plain", "policy"]
)
def read(
    request: pytest.FixtureRequest,
    run_dags: Callable[..., StepResults],
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    """What the task read, without and with a policy."""
    home = tmp_path_factory.mktemp("airflow")
    variables = {}
    if request.param:
        policy = home / "policy.yaml"
        policy.write_text("version: 1\n")
        variables["ENTREPOT_POLICY"] = str(policy)
    return run_dags(DAGS, home, AIRFLOW__CORE__DAGS_FOLDER=str(DAGS.parent), **variables).value("sequences")


def test_items_are_requested_in_batches(read: Any) -> None:
    assert read["state"] == "success"
    assert read["class"] == "ReadAheadSequence"
    values, requests = read["iterated"]
    assert values == list(range(INSTANCES))
    assert [kind for kind in requests if kind in REQUESTS] == ["GetXComSequenceItem", "GetXComSequenceSlice"]
    assert read["again"][0] == values
    assert len([kind for kind in read["again"][1] if kind in REQUESTS]) <= 1


def test_mapped_and_zipped_sequences(read: Any) -> None:
    doubled, requests = read["mapped"]
    assert doubled == [2 * value for value in range(INSTANCES)]
    assert len([kind for kind in requests if kind in REQUESTS]) == 2
    assert read["zipped"] == [[value, value] for value in range(INSTANCES)]


def test_other_ways_to_read(read: Any) -> None:
    assert read["reversed"] == list(reversed(range(INSTANCES)))
    assert read["single"] == [3, INSTANCES - 1, [1, 2], INSTANCES]


def test_an_instance_that_ran_again_meanwhile_is_read_anew(read: Any) -> None:
    assert read["changed"] == [0, 1, 2, 33, "plain", 5]
