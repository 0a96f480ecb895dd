"""The interface of all communicators, and what can be built from its three primitives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np

ReduceOperation = Literal["sum", "min", "max", "prod"]


class Communicator(ABC):
    """Collective operations of the ranks of one program: all ranks call the same ones, in the same order.

    Used by one thread. Values are whatever the store takes; tables and arrays that arrive are read-only.

    Args:
        rank: of this process, from 0.
        size: how many ranks there are.
    """

    def __init__(self, rank: int, size: int) -> None:
        if not 0 <= rank < size:
            raise InvalidArgument(f"rank {rank} is not one of {size} ranks, which are numbered from 0")
        self.rank = rank
        self.size = size
        self._operator = ""  # what the program is doing, for errors

    @contextmanager
    def within(self, operator: str) -> Iterator[None]:
        """Context in which errors name ``operator``; the outermost one counts."""
        if self._operator:
            yield
            return
        self._operator = operator
        try:
            yield
        finally:
            self._operator = ""

    # --- what each implementation provides

    @property
    @abstractmethod
    def phase(self) -> str:
        """What the program is doing, and the number of the last operation, for errors."""

    @abstractmethod
    def fail(self, rank: int, reason: str, phase: str = "") -> None:
        """Let the operations of all ranks raise :class:`RankFailed`; the first failure counts.

        Args:
            rank: which one has failed.
            reason: why, in a sentence.
            phase: what it was doing.
        """

    @abstractmethod
    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order, on every rank.

        Raises:
            RankFailed: a rank failed or died.
            Timeout: a rank did not take part in time.
            ProgramsDiffer: a rank called another operation.
        """

    @abstractmethod
    def all_to_all(self, values: Sequence[Any]) -> list[Any]:
        """Send ``values[i]`` to rank ``i``; return what each rank sent to this one, in their order.

        Raises:
            InvalidArgument: there is not one value for each rank.
            RankFailed, Timeout, ProgramsDiffer: as for :meth:`all_gather`.
        """

    @abstractmethod
    def broadcast(self, value: Any = None, root: int = 0) -> Any:
        """Return the value of rank ``root`` on every rank; the other ranks' ``value`` is ignored.

        Raises:
            InvalidArgument: there is no such rank.
            RankFailed, Timeout, ProgramsDiffer: as for :meth:`all_gather`.
        """

    @abstractmethod
    def gather(self, value: Any, root: int = 0) -> list[Any] | None:
        """Return the values of all ranks on rank ``root``, and None on the others; errors as :meth:`broadcast`."""

    @abstractmethod
    def settle(self) -> None:
        """Give back what is kept for other ranks; called when every rank has ended all operations so far."""

    # --- what follows from it

    def barrier(self) -> None:
        """Return when all ranks have called this; errors as :meth:`all_gather`."""
        self.all_gather(None)

    def all_reduce(self, value: Any, operation: ReduceOperation = "sum") -> Any:
        """Combine numbers, or arrays of one shape, of all ranks, element by element; the result is on every rank.

        Args:
            value: a number or a NumPy array.
            operation: ``"sum"``, ``"min"``, ``"max"`` or ``"prod"``. Ranks are combined in their order, so that all
                get the same bits.

        Raises:
            InvalidArgument: an unknown operation, or shapes that differ.
            RankFailed, Timeout, ProgramsDiffer: as for :meth:`all_gather`.
        """
        return combined(self.all_gather(value), operation)

    def all_gather_sums(self, values: Sequence[int]) -> list[int]:
        """Sums of whole numbers over all ranks; errors as :meth:`all_gather`."""
        return [sum(column) for column in zip(*self.all_gather(list(values)), strict=True)]

    def reduce(self, value: Any, operation: ReduceOperation = "sum", root: int = 0) -> Any:
        """As :meth:`all_reduce`, with the result on rank ``root`` and None on the others."""
        values = self.gather(value, root)
        return None if values is None else combined(values, operation)

    def _checked_root(self, root: int) -> int:
        if not 0 <= root < self.size:
            raise InvalidArgument(f"there is no rank {root}: the program has {self.size} ranks, numbered from 0")
        return root

    def _checked_values(self, values: Sequence[Any]) -> Sequence[Any]:
        if len(values) != self.size:
            raise InvalidArgument(f"all_to_all got {len(values)} values for {self.size} ranks: one for each is needed")
        return values


def combined(values: Sequence[Any], operation: ReduceOperation) -> Any:
    """Combine numbers or arrays element by element, from the first to the last.

    >>> combined([3, 1, 2], "max")
    3

    Raises:
        InvalidArgument: an unknown operation, or shapes that differ.
    """
    import numpy as np

    functions: dict[str, np.ufunc] = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}
    if operation not in functions:
        raise InvalidArgument(f"unknown operation {operation!r}: use one of {', '.join(get_args(ReduceOperation))}")
    shapes = {np.shape(value) for value in values}
    if len(shapes) > 1:
        raise InvalidArgument(f"the ranks' arrays have different shapes: {', '.join(map(str, sorted(shapes)))}")
    result = values[0]
    for value in values[1:]:
        result = functions[operation](result, value)
    return result.item() if isinstance(result, np.generic) else result
