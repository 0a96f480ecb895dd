"""Inputs in the form that their type annotation asks for, whatever was stored."""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from entrepot.errors import InvalidArgument, UnsupportedType
from entrepot_io.concatenation import concatenated
from entrepot_io.conversions import COLLECTION, READ_LATER, convert, form_of, is_table, select
from entrepot_io.type_info import type_name

if TYPE_CHECKING:
    from dagster import DagsterInstance, InputContext, PartitionsDefinition

COLUMNS = "columns"
ALLOW_MISSING = "allow_missing_partitions"


class TypeHandler(ABC):
    """Loads inputs as a type of the user's: return some from ``EntrepotIOManager.type_handlers``.

        class Graphs(TypeHandler):
            types = (networkx.Graph,)

            def load(self, value, annotation):
                return networkx.from_pandas_edgelist(value)

    Attributes:
        types: annotations that it is for; subclasses of these too.

    >>> class Sets(TypeHandler):
    ...     types = (set,)
    ...     def load(self, value, annotation):
    ...         return set(value)
    >>> Sets().load([1, 2, 2], set)
    {1, 2}
    """

    types: tuple[type, ...] = ()

    @abstractmethod
    def load(self, value: Any, annotation: type) -> Any:
        """Return the input.

        Args:
            value: as stored, not an instance of ``annotation``; only the columns that the input names.
            annotation: of the input.
        """


@dataclass(frozen=True)
class InputType:
    """What an input's annotation and metadata ask for.

    Attributes:
        annotation: a class, or None: whatever was stored.
        is_optional: whether an input that was never written is None, and whether a stored None is one.
        by_partition: whether several partitions are a dictionary, whose values the annotation is of.
        omits_none: whether a dictionary of partitions leaves out those that are None, as Dagster's libraries do for
            ``dict[str, T | None]``.
        in_list: whether the input is a list, whose elements the annotation is of. Dagster reads each output that is
            fanned in by itself; a list may be stored as well.
        elements_optional: whether an element of a list may be None.
        allows_missing: whether several partitions leave out those that were never written.
        columns: of a table: names, or integers that are labels of pandas; None: all.
        handlers: for types of the user's.
        source: what is read, for errors: the asset.
        unread: of inputs that were made, the tables that lazy frames and readers will read. A step's own plans and
            batches tell nothing of the memory that they are over.
    """

    annotation: type | None
    is_optional: bool = False
    by_partition: bool = False
    omits_none: bool = False
    in_list: bool = False
    elements_optional: bool = False
    allows_missing: bool = False
    columns: Sequence[str | int] | None = None
    handlers: Sequence[TypeHandler] = field(default_factory=tuple[TypeHandler, ...])
    source: str = "this input"
    unread: list[Any] = field(default_factory=list[Any], compare=False)

    def of(self, value: Any) -> Any:
        """Return a stored value as this; of a stored dictionary or list, each of its values if the annotation is one.

        Raises:
            UnsupportedType: it has no such form.
            InvalidArgument: it has no such column, or no columns.
        """
        if value is None and self.is_optional:
            return None
        if self.by_partition and self.annotation is not None and isinstance(value, Mapping):
            return {key: None if each is None and self.omits_none else self._each(each) for key, each in value.items()}
        return self._each(value)

    def of_only_partition(self, partition: str, value: Any, *, in_range: bool) -> Any:
        """Return the only partition of an input: its value, or a dictionary of it if the annotation is one.

        Args:
            partition: its key.
            value: as stored. If that is a dictionary, which the annotation may mean, the run decides.
            in_range: whether the run covers a range of partitions, so that another run of it has several.

        Raises:
            UnsupportedType, InvalidArgument: as for :meth:`of`.
        """
        if value is None and self.is_optional:
            return None
        if self.by_partition and (in_range or not isinstance(value, Mapping)):
            return self.of_partitions({partition: value})
        return self.of(value)

    def of_no_partition(self) -> Any:
        """Return an input that has no partition: None, or an empty dictionary if the annotation is one."""
        return {} if self.by_partition and not self.is_optional else None

    def _each(self, value: Any) -> Any:
        """A value in the form of the annotation; of a list, as the annotation says, each of its elements."""
        if self.in_list and isinstance(value, list) and self._has_form():
            return [self._in_form(element) for element in value]
        return self._in_form(value)

    def _has_form(self) -> bool:
        return self.columns is not None or form_of(self.annotation) is not None or self._handler() is not None

    def _in_form(self, value: Any) -> Any:
        if value is None and self.elements_optional:
            return None
        if (form := form_of(self.annotation)) is not None:
            return self._converted(value, form, self.columns)
        if self.columns is not None:
            value = select(value, self.columns)
        annotation, handler = self.annotation, self._handler()
        if annotation is None or handler is None or isinstance(value, annotation):
            return value
        return handler.load(value, annotation)

    def _converted(self, value: Any, form: str, columns: Sequence[str | int] | None = None) -> Any:
        if form in READ_LATER:
            if type_name(value) != COLLECTION:  # whose members are read one by one, when the step asks for them
                value, columns = convert(value, READ_LATER[form], columns=columns), None
            self.unread.append(value)
        return convert(value, form, columns=columns)

    def _handler(self) -> TypeHandler | None:
        annotation = self.annotation
        if annotation is None:
            return None
        return next((handler for handler in self.handlers if issubclass(annotation, handler.types)), None)

    def of_partitions(self, values: Mapping[str, Any]) -> Any:
        """Return several partitions: one table if the annotation is that of a table, else a dictionary.

        A table's chunks are those of the partitions, in their order; only pandas copies, and columns whose type is not
        the same in all partitions.

        Raises:
            UnsupportedType, InvalidArgument: as for :meth:`of`; partitions have different columns, or types that have
                no common one.
        """
        if self.omits_none:
            values = {partition: value for partition, value in values.items() if value is not None}
        form = None if self.annotation is None or self.by_partition or self.in_list else form_of(self.annotation)
        if form is None or form == "numpy.ndarray" or not values:
            return {partition: self._each(value) for partition, value in values.items()}
        if form == "polars.LazyFrame" and (plan := self._plan(values)) is not None:
            return plan
        remedy = f"annotate the input with dict[str, {self.annotation.__name__ if self.annotation else form}]"
        tables: dict[str, Any] = {}
        for partition, value in values.items():
            try:
                tables[partition] = convert(value, "arrow", columns=self.columns)
            except UnsupportedType as error:
                raise UnsupportedType(f"the partition {partition} of {self.source}: {error}; or {remedy}") from error
        return self._converted(concatenated(tables, self.source, remedy), form)

    def _plan(self, values: Mapping[str, Any]) -> Any:
        """The partitions as one lazy frame, of which nothing is converted; None: their schemas differ."""
        if any(not is_table(value) for value in values.values()):
            return None
        import polars as pl

        unread = len(self.unread)
        plans = [self._each(value) for value in values.values()]
        schemas = [plan.collect_schema() for plan in plans]
        if any(schema != schemas[0] for schema in schemas):
            del self.unread[unread:]
            return None
        return pl.concat(plans)


def input_type(
    annotation: Any, metadata: Mapping[str, Any] | None, handlers: Sequence[TypeHandler], source: str = "this input"
) -> InputType:
    """Read what an input asks for.

    Args:
        annotation: of the function's argument, as Dagster has it.
        metadata: of the input's definition; ``columns`` is a list of names, or of integers, which are labels of pandas,
            ``allow_missing_partitions`` a boolean.
        handlers: for types of the user's.
        source: what is read, for errors.

    Raises:
        InvalidArgument: ``columns`` is not a list of names, each of them once.
    """
    columns = (metadata or {}).get(COLUMNS)
    if columns is not None and (
        not isinstance(columns, Sequence)
        or isinstance(columns, str)
        or not all(isinstance(c, (str, int)) and not isinstance(c, bool) for c in columns)
    ):
        raise InvalidArgument(f"an input's metadata {COLUMNS!r} must be a list of names, not {columns!r}")
    if columns is not None and len(set(columns)) < len(columns):
        repeated = next(name for name in columns if columns.count(name) > 1)
        raise InvalidArgument(f"an input's metadata {COLUMNS!r} has {repeated!r} more than once: name each column once")
    annotation, is_optional = _without_none(annotation)
    origin = get_origin(annotation)
    arguments: tuple[Any, ...] = get_args(annotation)
    by_partition = isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2
    in_list = origin in (list, Sequence) and len(arguments) == 1
    omits_none = elements_optional = False
    if by_partition:
        annotation, omits_none = _without_none(arguments[-1])
    elif in_list:
        annotation, elements_optional = _without_none(arguments[-1])
    return InputType(
        annotation if isinstance(annotation, type) else None,
        is_optional,
        by_partition,
        omits_none=omits_none,
        in_list=in_list,
        elements_optional=elements_optional,
        allows_missing=omits_none or bool((metadata or {}).get(ALLOW_MISSING, False)),
        columns=columns,
        handlers=tuple(handlers),
        source=source,
    )


def annotation_of(context: InputContext) -> Any:
    """The annotation of an input; None: Dagster's context has none, as one that a test has built."""
    from dagster import DagsterInvariantViolationError

    try:
        return context.dagster_type.typing_type
    except DagsterInvariantViolationError:
        return None


def in_order(
    keys: Sequence[str], definition: PartitionsDefinition[Any], instance: DagsterInstance | None
) -> Sequence[str]:
    """Partition keys in the order of their definition; Dagster has some as a set.

    Args:
        keys: what an input asks for.
        definition: of the asset's partitions.
        instance: has those that were added while Dagster ran.
    """
    if len(keys) < 2:
        return keys
    wanted = set(keys)
    return [key for key in definition.get_partition_keys(dynamic_partitions_store=instance) if key in wanted]


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """An annotation without ``| None``, and whether it had that."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    others = [each for each in get_args(annotation) if each is not type(None)]
    return (others[0] if len(others) == 1 else None), len(others) < len(get_args(annotation))
