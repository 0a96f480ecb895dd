"""The two environments of all tests, with pandas 3 and pandas 2, read each other's objects."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matrix_run
import pytest
from matrix_expectations import fault_of
from matrix_run import ENVIRONMENTS, PAIR, Reading

# It needs both environments, and only the stage with pandas 2 is sure to have them.
pytestmark = pytest.mark.skipif(
    Path(sys.prefix).name != ENVIRONMENTS["pandas2"], reason="runs in the stage with pandas 2: `make test-pandas2`"
)


@pytest.fixture(scope="module")
def readings(module_daemon: Any) -> list[Reading]:
    """Every value of each of the two, as the other one reads it."""
    return matrix_run.read_everywhere(PAIR, module_daemon.address)


def test_pandas_2_and_3_read_each_other(readings: list[Reading]) -> None:
    assert {reading.reader for reading in readings} == set(PAIR)
    faults = [f"{each.name} in {each.reader}: {fault}" for each in readings if (fault := fault_of(each))]
    assert not faults, "\n".join(faults)


def test_a_changed_value_is_noticed(readings: list[Reading]) -> None:
    reading = next(reading for reading in readings if reading.error is None)
    assert fault_of(reading) == ""
    assert "something else" in fault_of(replace(reading, read=[*reading.read, "something else"]))
