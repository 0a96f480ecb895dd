"""What a workflow is: stages, each of which runs once per part of the data, and values with names.

A stage knows neither hosts nor transports: it gets its inputs by name and returns its outputs by name. All stages are
deterministic, so a workflow gives the same answer however its values travel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = "Array | pa.Table"


class Answer(dict[str, Any]):
    """What the last stage returns instead of outputs."""


@dataclass(frozen=True)
class Part:
    """What a process works on.

    Attributes:
        index, count: which part of how many.
        scale: of the data; see each workflow.
    """

    index: int
    count: int
    scale: float

    def random(self, seed: int) -> np.random.Generator:
        """Random numbers of this part."""
        return np.random.default_rng([seed, self.index])


@dataclass(frozen=True)
class Stage:
    """A step of a workflow.

    Attributes:
        name: unique in the workflow.
        compute: from the part and the inputs by name to the outputs by name, or to the answer.
        reads: names of a part's inputs, given its index and the number of parts.
        single: run in one process instead of in one for each part.
    """

    name: str
    compute: Callable[[Part, Mapping[str, Any]], dict[str, Value] | Answer]
    reads: Callable[[int, int], Sequence[str]] = lambda index, count: ()
    single: bool = False


@dataclass(frozen=True)
class Workflow:
    """A sequence of stages; the last one returns the answer.

    Attributes:
        name: short, for options.
        label: for the table.
        stages: in the order in which they run.
    """

    name: str
    label: str
    stages: tuple[Stage, ...]

    def last_use(self, count: int) -> dict[str, int]:
        """For each value that is read, the index of the last stage that reads it."""
        return {
            name: number
            for number, stage in enumerate(self.stages)
            for index in range(1 if stage.single else count)
            for name in stage.reads(index, count)
        }


def each(name: str, count: int) -> list[str]:
    """The names of a value of all parts."""
    return [f"{name}.{index}" for index in range(count)]


def column(table: Any, name: str) -> Array:
    """A column as an array; without a copy, if it is in one piece."""
    array: Array = table.column(name).to_numpy()
    return array


def ridge(moments: Array, targets: int) -> Array:
    """Weights of a linear model from its moments: X'X beside X'Y, whose last ``targets`` columns are Y's."""
    features = moments.shape[0]
    weights: Array = np.linalg.solve(moments[:, :features] + np.eye(features), moments[:, features:])
    assert weights.shape == (features, targets)
    return weights
