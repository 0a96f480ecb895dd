"""The IO manager: outputs go to the store under keys that Dagster's own names give, inputs come from there.

Partitions behave as with Dagster's file-based IO managers: an input of several partitions is a dictionary by partition
key, of none it is ``None``; an output of several partitions is refused.
"""

from __future__ import annotations

from typing import Any

from dagster import (
    ConfigurableIOManager,
    DagsterInstance,
    InitResourceContext,
    InputContext,
    JsonMetadataValue,
    MetadataValue,
    OutputContext,
)
from entrepot.errors import InvalidArgument, ObjectNotFound
from entrepot_io.connections import session_store
from entrepot_io.handoff import get_by_key, put_value
from entrepot_io.reference import Reference
from entrepot_io.settings import Settings, resolve
from pydantic import Field, PrivateAttr

from entrepot_dagster.places import Place, asset_place, default_scope, output_place
from entrepot_dagster.records import REFERENCE, recorded_asset, recorded_output


class EntrepotIOManager(ConfigurableIOManager):
    """Hands outputs over by object ID, through shared memory.

    Assets are written in place and stay until they are written again; outputs of ops end with their run's session. What
    is not set here comes from ``ENTREPOT_*`` and then from defaults.
    """

    address: str | None = Field(default=None, description="Address of the store; unset: the user's private store.")
    scope: str | None = Field(default=None, description="Name of this deployment; unset: the instance's storage ID.")
    copy_mode: str | None = Field(
        default=None, alias="copy", description="How inputs are read: never (read-only), on_write or always."
    )
    session_ttl_seconds: float | None = Field(
        default=None, description="How long a run's outputs are kept after their last use; unset: 24 hours."
    )

    _instance: DagsterInstance | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Remember the instance; the store is connected to when the first value goes through."""
        self._instance = context.instance

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output and record its reference as metadata.

        Raises:
            InvalidArgument: the output belongs to several partitions.
            StoreFull: it does not fit.
            UnsupportedType: no codec takes it.
            StoreUnavailable: the store cannot be reached.
        """
        place = self._output_place(context)
        settings = self._settings()
        reference = put_value(self._store(place, settings), place.key, obj)
        metadata: dict[str, MetadataValue[Any]] = {
            "entrepot/id": MetadataValue.text(str(reference.id)),
            "entrepot/type": MetadataValue.text(reference.type),
            "entrepot/bytes": MetadataValue.int(reference.nbytes),
            REFERENCE: JsonMetadataValue(reference.to_dict()),
        }
        if reference.shape is not None:
            metadata["entrepot/shape"] = MetadataValue.text(" x ".join(map(str, reference.shape)))
        context.add_output_metadata(metadata)

    def load_input(self, context: InputContext) -> Any:
        """Read an input.

        Raises:
            ObjectNotFound: it was never written.
            ObjectLost: it was written, but lives on another host or is no longer in the store.
            StoreUnavailable: the store cannot be reached.
        """
        if not context.has_asset_key:
            return self._load_output(context)
        if not context.has_asset_partitions:
            return self._load_asset(context, None)
        partitions = context.asset_partition_keys
        if not partitions:
            return None
        may_miss = bool((context.definition_metadata or {}).get("allow_missing_partitions", False))
        loaded: dict[str, Any] = {}
        for partition in partitions:
            try:
                loaded[partition] = self._load_asset(context, partition)
            except ObjectNotFound:
                if not may_miss:
                    raise
                context.log.warning(
                    f"Partition {partition!r} of {context.asset_key.to_user_string()} was never written; it is skipped "
                    "because the input has allow_missing_partitions"
                )
        return loaded if len(partitions) > 1 else loaded.get(partitions[0])

    def _output_place(self, context: OutputContext) -> Place:
        if not context.has_asset_key:
            return output_place(context.get_identifier())
        path = context.asset_key.path
        if not context.has_asset_partitions:
            return asset_place(self._instance, path, None)
        partitions = context.asset_partition_keys
        if len(partitions) != 1:
            raise InvalidArgument(
                f"one output of {context.asset_key.to_user_string()} is for {len(partitions)} partitions, but each "
                "partition is stored as an object of its own: run the backfill with one run per partition, or return "
                "None and store the partitions yourself"
            )
        return asset_place(self._instance, path, partitions[0])

    def _load_asset(self, context: InputContext, partition: str | None) -> Any:
        place = asset_place(self._instance, context.asset_key.path, partition)
        recorded = None
        if self._instance is not None:
            recorded = recorded_asset(self._instance, context.asset_key, partition)
            if recorded is not None and recorded.key != place.key:
                recorded = None
        return self._read(place, recorded)

    def _load_output(self, context: InputContext) -> Any:
        identifier = context.get_identifier()
        place = output_place(identifier)
        try:
            return self._read(place, None)
        except ObjectNotFound:
            recorded = None if self._instance is None else recorded_output(self._instance, identifier[0], place.key)
            if recorded is None:
                raise
            return self._read(place, recorded)  # now says what was lost, and where

    def _read(self, place: Place, recorded: Reference | None) -> Any:
        settings = self._settings()
        return get_by_key(self._store(place, settings), place.key, copy=settings.copy, recorded=recorded)

    def _settings(self) -> Settings:
        return resolve(
            address=self.address, scope=self.scope, session_ttl=self.session_ttl_seconds, copy=self.copy_mode
        )

    def _store(self, place: Place, settings: Settings) -> Any:
        scope = settings.scope or default_scope(self._instance)
        return session_store(settings.address, scope, place.session, settings.session_ttl)
