"""Dagster Pipes, in the process that it starts: reads its inputs from the store and puts its outputs there.

Needs ``entrepot`` and ``dagster-pipes`` alone::

    with open_dagster_pipes() as pipes:
        values = PipesValues(pipes)
        orders = values.get("orders")
        values.put(orders.group_by("customer").aggregate([("price", "sum")]))

The step that starts the process passes :meth:`EntrepotResource.pipes_extras`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from entrepot.codec import CopyMode
from entrepot.errors import InvalidReference
from entrepot_io.conversions import computed
from entrepot_io.external_task import ExternalTask
from entrepot_io.reference import Reference

from entrepot_dagster.values.output_facts import (
    Fact,
    memory_facts,
    partitions_facts,
    reference_facts,
    table_facts,
)

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

EXTRA = "entrepot"  # key among the extras of Pipes, and of the messages about an op's outputs
PREVIEW_ROWS = 5


class PipesValues:
    """The values of a step, in the external process of Dagster Pipes."""

    def __init__(self, pipes: PipesContext, *, preview_rows: int = PREVIEW_ROWS) -> None:
        """Read what the step has passed on.

        Args:
            pipes: as returned by ``open_dagster_pipes()``.
            preview_rows: how many first rows of a table Dagster's database gets for its pages; 0: none.

        Raises:
            InvalidReference: the step passed no ``pipes_extras``.
            VersionMismatch: its version of Entrepot is newer.
        """
        description = pipes.extras.get(EXTRA)
        if description is None:
            raise InvalidReference(
                "the step passed no values to this process: call its Pipes client with "
                "extras=entrepot.pipes_extras(context), where entrepot is an EntrepotResource"
            )
        self._pipes = pipes
        self._task = ExternalTask.parse(description)
        self._preview_rows = preview_rows

    @property
    def inputs(self) -> list[str]:
        """Names of what can be got: upstream assets' keys, as text."""
        return sorted(self._task.inputs)

    @property
    def outputs(self) -> list[str]:
        """Names of what can be put: the step's assets' keys, as text, or the names of an op's outputs."""
        return sorted(self._task.outputs)

    def get(self, name: str, *, copy: CopyMode = "never") -> Any:
        """Return an upstream asset's value: a view of the store's memory. Several partitions are a dictionary.

        Args:
            name: the asset's key, such as ``"orders"`` or ``"sales/orders"``.
            copy: ``"never"`` for a read-only view, ``"on_write"`` or ``"always"`` for a writable value.

        Raises:
            ObjectNotFound: it is not upstream of the step, or was never written to the store.
            ObjectLost: it is no longer in the store.
            StoreUnavailable: the store cannot be reached.
        """
        return self._task.get(name, copy=copy)

    def put(
        self,
        value: Any,
        *,
        asset_key: str | None = None,
        output: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        data_version: str | None = None,
    ) -> None:
        """Put an output into the store, and report it to Dagster: an asset as materialized.

        Args:
            value: anything that a codec accepts; a dictionary by partition if the step covers several. Of a Polars
                ``LazyFrame`` or Arrow's ``RecordBatchReader``, the rows are stored.
            asset_key: which of the step's assets; None: its only one.
            output: which of an op's outputs; None: its only one. The op gets it by ``EntrepotResource.pipes_output``.
            metadata: of the materialization, in addition to the IO manager's own, over which it takes precedence.
            data_version: of the asset.

        Raises:
            InvalidArgument: the step has no such asset or output, or several, or partitions are missing.
            StoreFull: it does not fit.
            UnsupportedType: no codec accepts it.
            StoreUnavailable: the store cannot be reached.
        """
        name = self._task.output_name(asset_key or output)
        if self._task.outputs[name].partitions and isinstance(value, Mapping):
            value = {partition: computed(each) for partition, each in value.items()}
        value = computed(value)
        references = self._task.put(value, name)
        if not self._pipes.is_asset_step:
            data = references.to_dict() if isinstance(references, Reference) else None
            self._pipes.report_custom_message({EXTRA: {"output": name, "reference": data}})
            return
        facts = self._facts(value, references)
        raw: dict[str, Any] = {label: {"raw_value": fact.value, "type": fact.type} for label, fact in facts.items()}
        self._pipes.report_asset_materialization(
            metadata={**raw, **(metadata or {})}, data_version=data_version, asset_key=name
        )

    def _facts(self, value: Any, references: Reference | dict[str, Reference]) -> dict[str, Fact]:
        is_partition = self._pipes.is_partition_step
        if isinstance(references, Reference):
            table = table_facts(value, self._preview_rows, is_partition=is_partition)
            return reference_facts(references) | memory_facts([references], self._task.address) | table
        first = value[next(iter(references))]
        table = table_facts(first, self._preview_rows, is_partition=True, with_rows=False)
        return partitions_facts(references) | memory_facts(references.values(), self._task.address) | table
