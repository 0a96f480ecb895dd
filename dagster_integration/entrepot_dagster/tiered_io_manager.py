"""An IO manager over two: the store, for speed, and a durable one, which has everything that the store may lose.

An output takes this way::

    handle_output --> (store) --> (store and durable)      synchronously; or
                  --> (store) --pending--> (store and durable)     in the background, until the step's end

``load_input`` reads from the store, and from the durable tier what the store does not have.
"""

# Annotations are not postponed here: Dagster looks at those of the class's fields.
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from typing import Any

from dagster import (
    ConfigurableIOManager,
    InitResourceContext,
    InputContext,
    IOManager,
    MetadataValue,
    OutputContext,
    ResourceDependency,
)
from entrepot.errors import ObjectDropped, ObjectLost, ObjectNotFound, StoreFull, StoreUnavailable
from pydantic import Field, PrivateAttr

from entrepot_dagster.io_manager import EntrepotIOManager

# What the durable tier makes up for.
_MISSING = (ObjectNotFound, ObjectLost, ObjectDropped, StoreUnavailable)


class TieredIOManager(ConfigurableIOManager):
    """Writes outputs to the store and to a durable IO manager, and reads them from the store first.

        from dagster import FilesystemIOManager

        TieredIOManager(store=EntrepotIOManager(), durable=FilesystemIOManager(base_dir="/data/assets"))

    With a durable tier of Parquet files or of a database, what a step reads may have another type after the store has
    lost it: annotate inputs.
    """

    store: ResourceDependency[EntrepotIOManager]
    durable: ResourceDependency[IOManager]
    background: bool = Field(
        default=False,
        description="Whether the durable tier is written while the step goes on; its process waits at its end, and an "
        "error is then one of the process, not of the output.",
    )

    _pending: list[Future[None]] = PrivateAttr(default_factory=list)
    _writer: ThreadPoolExecutor | None = PrivateAttr(default=None)

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output to both tiers.

        If the store is full or cannot be reached, the output is in the durable tier alone, and the log says so.

        Raises:
            what the durable IO manager raises; what the store raises otherwise.
        """
        try:
            self.store.handle_output(context, obj)
        except (StoreFull, StoreUnavailable) as error:
            context.log.warning(f"Entrepot: the output is in the durable tier only: {error}")
        store_metadata = dict(context.consume_logged_metadata())
        if self.background:
            if self._writer is None:
                self._writer = ThreadPoolExecutor(1, thread_name_prefix="entrepot-durable")
            # On a context of its own: what it adds comes too late for the event of this one.
            self._pending.append(self._writer.submit(self.durable.handle_output, copy(context), obj))
            durable_metadata: Mapping[str, MetadataValue[Any]] = {}
        else:
            self.durable.handle_output(context, obj)
            durable_metadata = context.consume_logged_metadata()
        context.add_output_metadata(store_metadata | dict(durable_metadata))

    def load_input(self, context: InputContext) -> Any:
        """Read an input from the store, or from the durable tier if the store does not have it.

        Raises:
            what the durable IO manager raises, with the store's error as its cause.
        """
        try:
            return self.store.load_existing(context)
        except _MISSING as missing:
            context.log.info(f"Entrepot: reading {context.get_identifier()} from the durable tier: {missing}")
            try:
                return self.durable.load_input(context)
            except Exception as error:
                raise error from missing

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        """Wait for what is written in the background.

        Raises:
            what the durable IO manager has raised.
        """
        if self._writer is None:
            return
        self._writer.shutdown()
        self._writer = None
        pending, self._pending = self._pending, []
        for write in pending:
            write.result()
