"""Environments with different versions of NumPy, Arrow, pandas and Polars read each other's objects."""

from __future__ import annotations

import sys
from typing import Any

import matrix_run
import pytest
from matrix_expectations import REFUSALS, fault_of, refusal_of
from matrix_run import MATRIX, Reading

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.version_info >= (3, 13), reason="the oldest packages have no wheels for this Python"),
]


@pytest.fixture(scope="module")
def readings(module_daemon: Any) -> list[Reading]:
    """Every value of every environment, as every other one reads it."""
    missing = [name for name in MATRIX if not matrix_run.python_of(name).exists()]
    assert not missing, f"the environments {missing} are not there: `make environments` makes them"
    return matrix_run.read_everywhere(MATRIX, module_daemon.address)


@pytest.mark.parametrize("reader", MATRIX)
def test_every_value_is_read_exactly_or_refused_by_name(readings: list[Reading], reader: str) -> None:
    mine = [reading for reading in readings if reading.reader == reader]
    assert len({reading.writer for reading in mine}) == len(MATRIX) - 1
    faults = [f"{reading.name} of {reading.writer}: {fault}" for reading in mine if (fault := fault_of(reading))]
    assert not faults, "\n".join(faults)


def test_every_refusal_occurs(readings: list[Reading]) -> None:
    seen = {id(refusal_of(reading)) for reading in readings}
    assert [refusal for refusal in REFUSALS if id(refusal) not in seen] == []


def test_the_versions_differ(readings: list[Reading]) -> None:
    versions = {reading.reader: reading.versions for reading in readings}
    assert len({str(sorted(mine.items(), key=str)) for mine in versions.values()}) == len(MATRIX)
    assert versions["numpy-only"]["pandas"] is None
    assert versions["numpy-only"]["pyarrow"] is None
    assert versions["no-arrow"]["pyarrow"] is None
