"""What an IO manager reads and writes: the values of a step, in the store, with what Dagster's event log says of them.

Only processes that execute steps import this module, and with it the client of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from entrepot.codec import default_registry
from entrepot.errors import ObjectNotFound
from entrepot_io.connections import session_store
from entrepot_io.sessions import SCOPE_SESSION
from entrepot_io.usage_hints import parse_usage_hints
from entrepot_io.values import delete_by_key, get_by_key, key_exists, prefetch_values, put_value

from entrepot_dagster.compat.steps import add_partition_metadata, covers_range, has_step
from entrepot_dagster.session_sweeper import sweep
from entrepot_dagster.traced_runs import traced_in_run
from entrepot_dagster.values.deployments import register_deployment
from entrepot_dagster.values.keys import OutputKey, default_scope, key_of_asset, key_of_output
from entrepot_dagster.values.last_writes import LastWrite, last_write
from entrepot_dagster.values.output_metadata import (
    Metadata,
    memory_metadata,
    partitions_metadata,
    reference_metadata,
    table_metadata,
)
from entrepot_dagster.values.partition_outputs import check_partitions
from entrepot_dagster.values.read_only_advice import add_read_only_advice
from entrepot_dagster.values.reference_log import recorded_output
from entrepot_dagster.values.typed_inputs import InputType, in_order

if TYPE_CHECKING:
    from dagster import DagsterInstance, InputContext, MetadataValue, OutputContext
    from entrepot import Store
    from entrepot_io.reference import Reference
    from entrepot_io.settings import Settings

    from entrepot_dagster.policy.policy_runtime import StepPolicy

LOCALITY_SET = "entrepot/locality_set"
# Of an output with more, Dagster's pages show what all have in common: each partition takes a look at all of the range.
MAX_DESCRIBED_PARTITIONS = 100


def import_codecs() -> None:
    """Import what is needed for values of the libraries that this process has imported: 10 to 30 ms."""
    default_registry().import_loaded()


class StoredValues:
    """The values of one IO manager; made for each call, as settings may come from the environment.

    Args:
        settings: the IO manager's.
        instance: the one that it works for; None: none.
        step_policy: how its policy reads and writes; None: there is no policy.
    """

    def __init__(self, settings: Settings, instance: DagsterInstance | None, step_policy: StepPolicy | None) -> None:
        self._settings = settings
        self._instance = instance
        self._step_policy = step_policy
        self._scope = settings.scope or default_scope(instance)

    def write(self, context: OutputContext, obj: Any, preview_rows: int) -> Metadata:
        """Write an output, and return its metadata.

        Args:
            context: of the output.
            obj: of an output with several partitions, a dictionary of these.
            preview_rows: how many first rows of a table are among its metadata.

        Raises:
            as ``EntrepotIOManager.handle_output``.
        """
        settings = self._settings
        if settings.scope is not None:
            register_deployment(self._instance, self._open(SCOPE_SESSION, None))
        is_partition = context.has_asset_key and context.has_asset_partitions
        if is_partition and len(context.asset_partition_keys) > 1:
            return self._write_partitions(context, obj, preview_rows)
        reference, policy_metadata = self._write(context, self._keys_of_output(context)[0], obj)
        return {**self._metadata(reference, obj, preview_rows, is_partition=is_partition), **policy_metadata}

    def read(self, context: InputContext, wanted: InputType, *, none_if_missing: bool, allow_missing: bool) -> Any:
        """Read an input.

        Args:
            context: of the input.
            wanted: its form.
            none_if_missing: whether one that was never written is None.
            allow_missing: whether partitions that were never written are left out of several.

        Raises:
            as ``EntrepotIOManager.load_input``.
        """
        if not context.has_asset_key:
            return wanted.of(self._read_output(context))
        if context.has_asset_partitions:
            return self._read_partitions(context, wanted, none_if_missing=none_if_missing, allow_missing=allow_missing)
        try:
            return wanted.of(self._read(context, *self._find_asset(context, None), lambda: None))
        except ObjectNotFound:
            if not none_if_missing:
                raise
            return None

    def has(self, context: OutputContext) -> bool:
        """Return whether an output is in the store; of several partitions, whether all are. What another IO manager
        has written since is not.

        Raises:
            InvalidReference: the event log holds a damaged one.
            StoreUnavailable: the store cannot be reached.
        """
        return all(
            self._has(context, output_key, partition)
            for output_key, partition in zip(
                self._keys_of_output(context), self._partitions_of_output(context), strict=True
            )
        )

    def delete(self, context: OutputContext) -> bool:
        """Delete an output, or all of its partitions; return whether anything was there.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        deleted = [delete_by_key(self._store(each), each.key) for each in self._keys_of_output(context)]
        return any(deleted)

    def sweep(self) -> None:
        """Remove the values of deleted runs, unless that was done recently; errors are only logged."""
        settings = self._settings
        if settings.scope is None:  # one set by the user may be shared by instances that do not know each other's runs
            sweep(self._instance, settings.address, lambda: self._open(SCOPE_SESSION, settings.session_ttl))

    def _write(
        self, context: OutputContext, output_key: OutputKey, obj: Any
    ) -> tuple[Reference, Mapping[str, MetadataValue[Any]]]:
        locality_set = parse_usage_hints((context.definition_metadata or {}).get(LOCALITY_SET))

        def put() -> Reference:
            with traced_in_run(context, self._settings, self._scope):
                return put_value(self._store(output_key), output_key.key, obj, usage_hints=locality_set)

        if self._step_policy is None:
            return put(), {}
        return self._step_policy.write(context, output_key, lambda: self._store(output_key), put)

    def _write_partitions(self, context: OutputContext, obj: Any, preview_rows: int) -> Metadata:
        """Write one output with several partitions, as a backfill in a single run has it: a dictionary of them."""
        partitions = context.asset_partition_keys
        has_policy = self._step_policy is not None
        check_partitions(context.asset_key.to_user_string(), partitions, obj, has_policy=has_policy)
        path = context.asset_key.path
        references = {
            partition: self._write(context, self._key_of_asset(path, partition), obj[partition])[0]
            for partition in partitions
        }
        if has_step(context) and len(partitions) <= MAX_DESCRIBED_PARTITIONS:
            of_each = {
                partition: self._metadata(reference, obj[partition], preview_rows, is_partition=True)
                for partition, reference in references.items()
            }
            add_partition_metadata(context, of_each)
            return {}
        return {
            **partitions_metadata(references),
            **memory_metadata(references.values(), self._settings.address),
            **table_metadata(obj[partitions[0]], 0, is_partition=True, with_rows=False),
        }

    def _metadata(self, reference: Reference, value: Any, preview_rows: int, *, is_partition: bool) -> Metadata:
        return {
            **reference_metadata(reference),
            **memory_metadata([reference], self._settings.address),
            **table_metadata(value, preview_rows, is_partition=is_partition),
        }

    def _read_partitions(
        self, context: InputContext, wanted: InputType, *, none_if_missing: bool, allow_missing: bool
    ) -> Any:
        partitions = in_order(context.asset_partition_keys, context.asset_partitions_def, self._instance)
        if not partitions:
            return wanted.of_no_partition()
        loaded: dict[str, Any] = {}
        assets = {partition: self._find_asset(context, partition) for partition in partitions}
        # All of them come from other hosts at once, and not one after the other.
        recorded = [reference for _, reference in assets.values() if reference is not None]
        prefetch_values(recorded, address=self._settings.address)
        for partition in partitions:
            try:
                loaded[partition] = self._read(context, *assets[partition], lambda: None)
            except ObjectNotFound:
                if none_if_missing and len(partitions) == 1:
                    return None
                if not allow_missing:
                    raise
                context.log.warning(
                    f"Partition {partition!r} of {context.asset_key.to_user_string()} was never written; skipping it "
                    "because the input has allow_missing_partitions, or is annotated with Optional values"
                )
        if len(partitions) > 1:
            return wanted.of_partitions(loaded)
        if not loaded:
            return wanted.of_no_partition()
        return wanted.of_only_partition(partitions[0], loaded[partitions[0]], in_range=covers_range(context))

    def _read_output(self, context: InputContext) -> Any:
        identifier = context.get_identifier()
        output_key = key_of_output(identifier)

        def find() -> Reference | None:
            return None if self._instance is None else recorded_output(self._instance, identifier[0], output_key.key)

        return self._read(context, output_key, None, find)

    def _read(
        self,
        context: InputContext,
        output_key: OutputKey,
        recorded: Reference | None,
        find: Callable[[], Reference | None],
    ) -> Any:
        settings = self._settings
        if settings.copy == "never":
            add_read_only_advice(context)

        def get(expected_reference: Reference | None) -> Any:
            with traced_in_run(context, settings, self._scope):
                store = self._store_of(output_key, expected_reference)
                return get_by_key(store, output_key.key, copy=settings.copy, recorded=expected_reference)

        if self._step_policy is not None:
            return self._step_policy.read(context, output_key, recorded, find, get)
        try:
            return get(recorded)
        except ObjectNotFound:
            reference = find()
            if reference is None:
                raise
            return get(reference)  # with the reference, the error says what was lost and where

    def _find_asset(self, context: InputContext, partition: str | None) -> tuple[OutputKey, Reference | None]:
        """Return where an asset is, and the reference to it; None: it was never written, as far as the log has it.

        Raises:
            ObjectLost: another IO manager has written it last.
            InvalidReference: the event log holds a damaged one.
        """
        output_key = self._key_of_asset(context.asset_key.path, partition)
        write = self._last_write(context, output_key, partition)
        if write is None:
            return output_key, None
        if write.reference is None:
            raise write.not_in_store(context.asset_key, partition)
        return output_key, write.reference

    def _last_write(
        self, context: InputContext | OutputContext, output_key: OutputKey, partition: str | None
    ) -> LastWrite | None:
        if self._instance is None or not context.has_asset_key:
            return None
        write = last_write(self._instance, context.asset_key, partition)
        if write is None or (write.reference is not None and write.reference.key != output_key.key):
            return None
        return write

    def _has(self, context: OutputContext, output_key: OutputKey, partition: str | None) -> bool:
        write = self._last_write(context, output_key, partition)
        if write is None:
            return key_exists(self._store(output_key), output_key.key)
        return write.reference is not None and key_exists(self._store_of(output_key, write.reference), output_key.key)

    def _keys_of_output(self, context: OutputContext) -> list[OutputKey]:
        if not context.has_asset_key:
            return [key_of_output(context.get_identifier())]
        return [
            self._key_of_asset(context.asset_key.path, partition) for partition in self._partitions_of_output(context)
        ]

    def _partitions_of_output(self, context: OutputContext) -> Sequence[str | None]:
        return context.asset_partition_keys if context.has_asset_key and context.has_asset_partitions else [None]

    def _key_of_asset(self, path: Sequence[str], partition: str | None) -> OutputKey:
        return key_of_asset(self._instance, path, partition, explicit_scope=self._settings.scope is not None)

    def _store(self, output_key: OutputKey) -> Store:
        return self._open(output_key.session, self._settings.session_ttl)

    def _store_of(self, output_key: OutputKey, reference: Reference | None) -> Store:
        """Where a value is: in the scope and session that it was written to, which may be others than today's."""
        if reference is None:
            return self._store(output_key)
        return self._open(reference.session, self._settings.session_ttl, scope=reference.scope)

    def _open(self, session: str, ttl: float | None, *, scope: str | None = None) -> Store:
        settings = self._settings
        return session_store(
            settings.address, scope or self._scope, session, ttl, object_strings=settings.object_strings
        )
