"""An IO manager over two: the store, for speed, and a durable one, which has everything that the store may lose.

An output takes this way::

    handle_output --> (store) --> (store and durable)      at once; or, an asset in the background,
                  --> (store) --pending--> (store and durable)
                                       --> (store), and an observation of the asset says why

``load_input`` reads from the store, and from the durable tier what the store does not have.
"""

# Annotations are not postponed here: Dagster looks at those of the class's fields.
from copy import copy
from typing import Any

from dagster import (
    ConfigurableIOManager,
    ConfigurableIOManagerFactory,
    DagsterInstance,
    Failure,
    InitResourceContext,
    InputContext,
    IOManager,
    MetadataValue,
    OutputContext,
    ResourceDefinition,
    ResourceDependency,
    RetryRequested,
)
from entrepot.errors import (
    EntrepotError,
    InvalidArgument,
    ObjectDropped,
    ObjectLost,
    ObjectNotFound,
    StoreFull,
    StoreUnavailable,
    Timeout,
)
from entrepot_io.settings import switch
from pydantic import Field, PrivateAttr

from entrepot_dagster.background_writes import (
    FAILED,
    PENDING,
    STORE_ALONE,
    WRITE,
    WRITTEN,
    BackgroundWrites,
    DurableReadFailed,
    missing_durable_copy,
)
from entrepot_dagster.compat.steps import with_missing_partitions
from entrepot_dagster.durable_configuration import configured_tier
from entrepot_dagster.durable_outputs import check_deletes, delete_durable, durable_has, left_out, name_of_tier
from entrepot_dagster.durable_partitions import write_partitions
from entrepot_dagster.io_manager import EntrepotIOManager
from entrepot_dagster.values.deferred_settings import check_names, read_deferred, unless_deferred
from entrepot_dagster.values.last_writes import STATE, last_write, name_of
from entrepot_dagster.values.lazy_outputs import collected_once
from entrepot_dagster.values.lost_inputs import no_retries_in_vain
from entrepot_dagster.values.partition_outputs import of_only_partition
from entrepot_dagster.values.partition_tables import split_by_partition

# A store whose daemon is stopped does not answer, which a process that is connected to it notices as a Timeout.
_AWAY = (StoreUnavailable, Timeout)
# What the durable tier makes up for.
_MISSING = (ObjectNotFound, ObjectLost, ObjectDropped, *_AWAY)


class TieredIOManager(ConfigurableIOManager):
    """Writes outputs to the store and to a durable IO manager, and reads them from the store first.

        from dagster import FilesystemIOManager

        TieredIOManager(store=EntrepotIOManager(), durable=FilesystemIOManager(base_dir="/data/assets"))

    An input without an annotation may have another type after the store has lost it, if the durable tier is of Parquet
    files or a database. One with an annotation has the form that it asks for, from either tier.

    >>> import tempfile
    >>> import dagster
    >>> files = dagster.FilesystemIOManager(base_dir=tempfile.mkdtemp())
    >>> @dagster.asset
    ... def numbers() -> list[int]:
    ...     return [1, 2, 3]
    >>> tiers = TieredIOManager(store=EntrepotIOManager(), durable=files)
    >>> dagster.materialize([numbers], resources={"io_manager": tiers}).success
    True
    """

    store: ResourceDependency[EntrepotIOManager]
    durable: ResourceDependency[IOManager]
    # A boolean or an EnvVar; Dagster's configuration has no such type.
    background: Any = Field(
        default=False,
        description="Whether assets are written to the durable tier while the step goes on; an observation of the "
        "asset then says when that was done, or why it failed. Outputs of ops are always written at once.",
    )

    _instance: DagsterInstance | None = PrivateAttr(default=None)
    _writes: BackgroundWrites = PrivateAttr(default_factory=BackgroundWrites)

    def __init__(self, **data: Any) -> None:
        """Check the settings.

        Raises:
            InvalidArgument: a tier is missing or is none; ``background`` is neither true nor false; or there is no such
                setting.
        """
        check_names(type(self), data)
        for name in ("store", "durable"):
            if data.get(name) is None:
                raise InvalidArgument(f"TieredIOManager needs two IO managers: {name}= is missing")
            if not isinstance(data[name], (IOManager, ConfigurableIOManagerFactory, ResourceDefinition)):
                raise InvalidArgument(f"TieredIOManager's {name} must be an IO manager, not {data[name]!r}")
        read_deferred(data, "background")
        if "durable" in data:
            data["durable"] = configured_tier(data["durable"])
        super().__init__(**data)
        switch("background", unless_deferred(self.background))

    @property
    def in_background(self) -> bool:
        """Whether assets are written to the durable tier in the background."""
        return switch("background", self.background)

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Learn which instance this is: its event log says what the durable tier has."""
        self._instance = context.instance

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output to both tiers.

        If the store is full, cannot be reached or does not answer, the output is in the durable tier alone, and the log
        says so. A full store then forgets its older value.

        Raises:
            what the durable IO manager raises; what the store raises otherwise.
        """
        obj = split_by_partition(context, collected_once(context, obj))
        durable_obj = of_only_partition(context, obj)
        not_in_store: Exception | None = None
        try:
            self.store.handle_output(context, obj)
        except (StoreFull, *_AWAY) as error:
            not_in_store = error
            context.log.warning(f"Entrepot: the output is in the durable tier only: {error}")
        metadata: dict[str, MetadataValue[Any]] = dict(context.consume_logged_metadata())
        instance = self._instance
        # Whether what an op has written is in the durable tier could not be known afterwards: it has no observations.
        if not_in_store is None and self.in_background and context.has_asset_key and instance is not None:
            # On a context of its own: what it adds comes too late for the event of this one.
            own_context = copy(context)
            write_id = self._writes.begin(
                context, instance, lambda: write_partitions(self.durable, own_context, durable_obj)
            )
            metadata |= {STATE: MetadataValue.text(PENDING), WRITE: MetadataValue.text(write_id)}
        else:
            write_partitions(self.durable, context, durable_obj)
            metadata |= {**context.consume_logged_metadata(), STATE: MetadataValue.text(WRITTEN)}
            if isinstance(not_in_store, StoreFull):
                self._forget(context)
        context.add_output_metadata(metadata)

    def load_input(self, context: InputContext) -> Any:
        """Read an input from the store, or from the durable tier if the store does not have it.

        What was last written by the durable IO manager alone is read from there, whatever the store has. An input that
        is annotated with ``Optional[...]`` is None if neither has ever had it: the store and the event log know nothing
        of it, and the durable tier has no such file.

        Raises:
            ObjectLost: neither has it: the durable tier was not written, and may have an older value. Of a step with a
                retry policy, a ``Failure`` without retries, unless it may still be written.
            FileNotFoundError: the durable tier has no such file, with the store's error as its cause.
            DurableReadFailed: the durable IO manager raises another error, which is the cause; but not in the place of
                an ``EntrepotError``, a ``Failure`` or a ``RetryRequested``.
        """
        if context.has_asset_key and context.has_asset_partitions and not context.asset_partition_keys:
            return self.durable.load_input(context)  # of no partitions, a database has an empty table
        try:
            return self.store.load_existing(context)
        except _MISSING as missing:
            with no_retries_in_vain(context):
                self._check_durable(context, missing)
            context.log.info(f"Entrepot: reading {_name_of_input(context)} from the durable tier: {missing}")
            return self._load_durable(context, missing)

    def has_output(self, context: OutputContext) -> bool:
        """Return whether an output is in the store, or in a durable tier that can tell, as ``UPathIOManager`` can; of
        several partitions, whether either tier has all. An older value than the last does not count.

        Raises:
            what the durable IO manager raises.
        """
        try:
            if self.store.has_output(context):
                return True
        except _AWAY:
            pass  # what counts then is the durable tier
        return self._not_durable(context) is None and durable_has(self.durable, context)

    def delete(self, context: OutputContext) -> bool:
        """Delete an output, or all of its partitions, from both tiers; return whether either had anything.

        Dagster does not call this: for your code. What a step still writes to the durable tier in the background is
        there afterwards.

        Raises:
            InvalidArgument: the durable tier can delete nothing: it has no files of ``UPathIOManager``, and no method
                ``delete``. Nothing is deleted then.
            StoreUnavailable: the store cannot be reached; nothing is deleted.
            what the durable IO manager raises.
        """
        check_deletes(self.durable)
        in_store = self.store.delete(context)
        return delete_durable(self.durable, context) or in_store

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        """Wait for what is written in the background.

        Raises:
            DurableWriteFailed: some of it could not be written.
        """
        self._writes.finish()

    def _load_durable(self, context: InputContext, missing: Exception) -> Any:
        own_context = with_missing_partitions(context) if self.store.allows_missing(context) else context
        try:
            value = self.durable.load_input(own_context)
        except FileNotFoundError as error:
            if isinstance(missing, ObjectNotFound) and self.store.is_optional(context):
                return None
            raise error from missing
        except (EntrepotError, Failure, RetryRequested) as error:
            raise error from missing  # they say by themselves what to do
        except Exception as error:
            error.__cause__ = error.__cause__ or missing
            raise DurableReadFailed(
                f"the durable tier, {name_of_tier(self.durable)}, could not read {_name_of_input(context)} "
                f"({type(error).__name__}: {error}), which the store does not have: if what it has is "
                "damaged, materialize it again"
            ) from error
        if own_context is not context and context.has_asset_key and context.has_asset_partitions:
            with no_retries_in_vain(context):
                self._check_left_out(own_context, value)
        return self.store.in_form(context, value)

    def _check_left_out(self, context: InputContext, value: Any) -> None:
        """Check that the partitions that the durable tier has left out of an input were never written."""
        if self._instance is None:
            return
        for partition in left_out(self.durable, context, value):
            write = last_write(self._instance, context.asset_key, partition)
            if write is not None:
                raise ObjectLost(
                    f"{name_of(context.asset_key, partition)} was last materialized in run {write.run_id}, but neither "
                    f"the store nor the durable tier, {name_of_tier(self.durable)}, has it: materialize it again"
                )

    def _check_durable(self, context: InputContext, missing: Exception) -> None:
        not_durable = self._not_durable(context)
        if not_durable is None:
            return
        subject, reason = not_durable
        is_away = isinstance(missing, _AWAY)
        error = ObjectLost(
            f"the store {'is not available to read' if is_away else 'has lost'} {subject}, and the durable tier does "
            f"not have its last value ({reason}): "
            + ("read it once the store is back, or materialize it again" if is_away else "materialize it again")
        )
        error.may_come_back = is_away or not reason.startswith((FAILED, STORE_ALONE))
        raise error from missing

    def _not_durable(self, context: InputContext | OutputContext) -> tuple[str, str] | None:
        """The first of an asset's partitions whose last value the durable tier may not have, and why."""
        if not context.has_asset_key or self._instance is None:
            return None
        partitions = context.asset_partition_keys if context.has_asset_partitions else [None]
        for partition in partitions:
            reason = missing_durable_copy(self._instance, context.asset_key, partition, self._writes)
            if reason is not None:
                return name_of(context.asset_key, partition), reason
        return None

    def _forget(self, context: OutputContext) -> None:
        """Delete the store's older value of an output that it could not take: nothing reads it any more."""
        try:
            self.store.delete(context)
        except _AWAY as error:
            context.log.warning(
                f"Entrepot: the store may keep an older value of the output, which is not read: {error}"
            )


def _name_of_input(context: InputContext) -> object:
    # Older versions of Dagster know no identifier of an asset outside of its own run.
    return context.asset_key.to_user_string() if context.has_asset_key else context.get_identifier()
