"""Reading the results of mapped tasks in batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from entrepot_airflow.values import read_ahead
from recorded_steps import StepResults

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

DAGS = Path(__file__).with_name("sequence_dags.py")
INSTANCES = 6
WITH_RESULT = [0, 1, 3, 4, 5]  # of the mapped task one of whose instances returns None


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


def of_items(requests: list[Any]) -> list[Any]:
    """The requests for items and for parts of the sequence; of the latter, with their bounds."""
    return [entry for entry in requests if entry == "GetXComSequenceItem" or isinstance(entry, list)]


def part(start: int, stop: int) -> list[Any]:
    """The request for a part of the sequence."""
    return ["GetXComSequenceSlice", start, stop]


def test_an_iteration_is_a_single_request(read: Any) -> None:
    assert read["state"] == "success"
    assert read["class"] == "ReadAheadSequence"
    values, requests = read["iterated"]
    assert values == list(range(INSTANCES))
    assert of_items(requests) == [part(0, read_ahead.REFERENCES)]
    assert read["again"][0] == values
    assert of_items(read["again"][1]) == []


def test_a_backward_iteration_is_a_single_request(read: Any) -> None:
    values, requests = read["reversed"]
    assert values == list(reversed(range(INSTANCES)))
    assert of_items(requests) == [part(0, INSTANCES)]


def test_who_reads_one_item_requests_no_others(read: Any) -> None:
    assert read["first"] == [0, ["GetXComSequenceItem"]]


def test_batches_grow_to_a_limit(read: Any) -> None:
    values, requests = read["growing"]
    assert values == list(range(INSTANCES))
    assert of_items(requests) == [part(0, 1), part(1, 3), part(3, 5), part(5, 7)]
    values, requests = read["growing back"]
    assert values == list(reversed(range(INSTANCES)))
    assert of_items(requests) == [part(5, 6), part(3, 5), part(1, 3), part(0, 1)]


def test_mapped_zipped_and_joined_sequences(read: Any) -> None:
    doubled, requests = read["mapped"]
    assert doubled == [2 * value for value in range(INSTANCES)]
    assert of_items(requests) == ["GetXComSequenceItem", part(1, 1 + read_ahead.REFERENCES)]
    assert read["zipped"] == [[value, value] for value in range(INSTANCES)]
    joined, requests = read["joined"]
    assert joined == [*range(INSTANCES), *WITH_RESULT]
    assert len(of_items(requests)) <= 4


def test_every_way_to_read_yields_what_airflow_yields(read: Any) -> None:
    assert read["here"] == read["in Airflow"]
    assert read["here"]["iterated"] == list(range(INSTANCES))


def test_instances_that_returned_nothing_are_left_out_as_by_airflow(read: Any) -> None:
    assert read["gaps here"] == read["gaps in Airflow"]
    assert read["gaps here"]["iterated"] == WITH_RESULT
    assert read["gaps here"]["length"] == len(WITH_RESULT)


def test_an_instance_that_ran_again_meanwhile_is_read_anew(read: Any) -> None:
    assert read["changed"] == [0, 1, 2, 33, "plain", 5]


REFERENCE = {"entrepot": 1}


@pytest.mark.parametrize(
    ("former", "key", "step", "size"),
    [
        (None, 0, 1, read_ahead.REFERENCES),
        ((0, [REFERENCE] * 128, 128), 128, 1, 256),
        ((0, [REFERENCE] * 1024, 1024), 1024, 1, read_ahead.MORE_REFERENCES),
        ((872, [REFERENCE] * 128, 128), 871, -1, 256),
        ((0, [REFERENCE] * 128, 128), 500, 1, read_ahead.REFERENCES),  # read from elsewhere
        ((0, [*["plain"] * 127, REFERENCE], 128), 128, 1, read_ahead.REFERENCES),  # next ones may be large
        ((0, [*[REFERENCE] * 127, "plain"], 128), 128, 1, read_ahead.PLAIN_ENTRIES),
        ((0, [REFERENCE] * 16, 16), 16, 1, read_ahead.REFERENCES),
        ((128, [], 256), 0, 1, read_ahead.REFERENCES),  # again from the beginning
    ],
)
def test_batches_are_as_large_as_the_entries_before_permit(former: Any, key: int, step: int, size: int) -> None:
    assert read_ahead._batch_size(former, key, step) == size
