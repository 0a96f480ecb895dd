"""The IO manager: writes outputs to the store under keys derived from Dagster's own names, and reads inputs from there.

Partitions behave as in Dagster's file-based IO managers: an input with several partitions is a dictionary by partition
key, one with no partitions is ``None``, and an output for several partitions is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dagster import (
    ConfigurableIOManager,
    DagsterInstance,
    EnvVar,
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
from entrepot_io.sessions import SCOPE_SESSION, parse_ttl
from entrepot_io.settings import Settings, copy_mode, resolve
from entrepot_io.use import set_use
from pydantic import Field, PrivateAttr

from entrepot_dagster.advising import got_read_only
from entrepot_dagster.deployments import notice_others
from entrepot_dagster.places import Place, asset_place, default_scope, output_place
from entrepot_dagster.records import REFERENCE, recorded_asset, recorded_output
from entrepot_dagster.sweeping import sweep

if TYPE_CHECKING:
    from entrepot_dagster.at_work import Binding, StepRuns

T = TypeVar("T")
LOCALITY_SET = "entrepot/locality_set"
POLICY = "ENTREPOT_POLICY"


class EntrepotIOManager(ConfigurableIOManager):
    """Passes outputs by object ID, through shared memory.

    Assets are written in place and stay until they are written again; outputs of ops end with their run's session.
    Settings not given here come from ``ENTREPOT_*``, then from defaults.
    """

    address: str | None = Field(default=None, description="Address of the store; unset: the user's private store.")
    scope: str | None = Field(default=None, description="Name of this deployment; unset: the instance's storage ID.")
    copy_mode: str | None = Field(
        default=None, alias="copy", description="How inputs are read: never (read-only), on_write or always."
    )
    # A number or a string such as "24h"; Dagster's configuration has no such type.
    session_ttl_seconds: Any = Field(
        default=None, description="How long a run's outputs are kept after their last use; unset: 24 hours."
    )

    policy: str | None = Field(
        default=None, description="File of the policy for checkpoints and failover; unset: ENTREPOT_POLICY; off: none."
    )

    _instance: DagsterInstance | None = PrivateAttr(default=None)
    _steps: Any = PrivateAttr(default=None)  # StepRuns, once there is a policy

    def __init__(self, **data: Any) -> None:
        """Check the settings and the policy, so that errors are reported when definitions are loaded.

        Raises:
            PolicyError: the policy is invalid; the message has file and line.
            InvalidArgument: the policy file does not exist, or a setting is out of range.
        """
        ttl = data.get("session_ttl_seconds")
        if isinstance(ttl, Mapping):  # Dagster's representation of an EnvVar in a field with several types
            data["session_ttl_seconds"] = _variable(str(ttl.get("env")))
        super().__init__(**data)
        copy_mode(_now(self.copy_mode))
        parse_ttl(_now(self.session_ttl_seconds))
        if self._has_policy() and not isinstance(self.policy, EnvVar):  # an EnvVar's value is known only in a step
            from entrepot_io.policy import find_policy

            find_policy(self.policy)

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Store the instance and check the policy; the store is connected to with the first value.

        Raises:
            PolicyError: the policy is invalid or, before a run's first step, its targets are not writable.
        """
        self._instance = context.instance
        self._steps = None
        at_work = self.at_work()
        if at_work is not None and context.run is not None and self._instance is not None:
            from entrepot_dagster.at_work import remember_run, try_targets

            try_targets(at_work.runtime.policy, self._instance, context.run.run_id)
            remember_run(context.run.run_id, at_work)

    def at_work(self) -> Binding | None:
        """Return this process's binding of the IO manager's policy; None: there is no policy.

        Raises:
            PolicyError, InvalidArgument: the policy is invalid.
        """
        steps = self._step_runs()
        return None if steps is None else steps.at_work

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output and record its reference as metadata.

        The output definition's metadata ``entrepot/locality_set``, a name or a mapping of ``name`` and attributes,
        selects its locality set.

        Raises:
            InvalidArgument: the output belongs to several partitions, or its locality set is malformed.
            StoreFull: it does not fit.
            UnsupportedType: no codec supports it.
            StoreUnavailable: the store cannot be reached.
        """
        place = self._output_place(context)
        settings = self._settings()
        if settings.scope is not None and context.has_asset_key:
            notice_others(self._instance, session_store(settings.address, settings.scope, SCOPE_SESSION, None))
        used = set_use((context.definition_metadata or {}).get(LOCALITY_SET))

        def put() -> Reference:
            return put_value(self._store(place, settings), place.key, obj, used=used)

        told: Mapping[str, MetadataValue[Any]] = {}
        steps = self._step_runs()
        if steps is None:
            reference = put()
        else:
            reference, told = steps.write(context, place, lambda: self._store(place, settings), put)
        metadata: dict[str, MetadataValue[Any]] = {
            "entrepot/id": MetadataValue.text(str(reference.id)),
            "entrepot/type": MetadataValue.text(reference.type),
            "entrepot/bytes": MetadataValue.int(reference.nbytes),
            REFERENCE: JsonMetadataValue(reference.to_dict()),
            **told,
        }
        if reference.shape is not None:
            metadata["entrepot/shape"] = MetadataValue.text(" x ".join(map(str, reference.shape)))
        context.add_output_metadata(metadata)
        sweep(self._instance, settings.address, reference.scope, lambda: self._store(place, settings))

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
            return self._asset_place(path, None)
        partitions = context.asset_partition_keys
        if len(partitions) != 1:
            raise InvalidArgument(
                f"one output of {context.asset_key.to_user_string()} is for {len(partitions)} partitions, but each "
                "partition is stored as an object of its own: run the backfill with one run per partition, or return "
                "None and store the partitions yourself"
            )
        return self._asset_place(path, partitions[0])

    def _asset_place(self, path: Sequence[str], partition: str | None) -> Place:
        return asset_place(self._instance, path, partition, named_scope=self._settings().scope is not None)

    def _load_asset(self, context: InputContext, partition: str | None) -> Any:
        place = self._asset_place(context.asset_key.path, partition)
        recorded = None
        if self._instance is not None:
            recorded = recorded_asset(self._instance, context.asset_key, partition)
            if recorded is not None and recorded.key != place.key:
                recorded = None
        return self._read(context, place, recorded, lambda: None)

    def _load_output(self, context: InputContext) -> Any:
        identifier = context.get_identifier()
        place = output_place(identifier)

        def find() -> Reference | None:
            return None if self._instance is None else recorded_output(self._instance, identifier[0], place.key)

        return self._read(context, place, None, find)

    def _read(
        self, context: InputContext, place: Place, recorded: Reference | None, find: Callable[[], Reference | None]
    ) -> Any:
        settings = self._settings()
        if settings.copy == "never":
            got_read_only(context)

        def get(known: Reference | None) -> Any:
            return get_by_key(self._store(place, settings), place.key, copy=settings.copy, recorded=known)

        steps = self._step_runs()
        if steps is not None:
            return steps.read(context, place, recorded, find, get)
        try:
            return get(recorded)
        except ObjectNotFound:
            known = find()
            if known is None:
                raise
            return get(known)  # with the reference, the error says what was lost and where

    def _has_policy(self) -> bool:
        return self.policy is not None or bool(os.environ.get(POLICY))

    def _step_runs(self) -> StepRuns | None:
        if self._steps is None and self._has_policy():
            from entrepot_dagster.at_work import StepRuns, binding

            settings = self._settings()
            scope = settings.scope or default_scope(self._instance)
            at_work = binding(self.policy, scope, settings.address, self._instance)
            self._steps = None if at_work is None else StepRuns(at_work)
        steps: StepRuns | None = self._steps
        return steps

    def _settings(self) -> Settings:
        return resolve(
            address=self.address, scope=self.scope, session_ttl=self.session_ttl_seconds, copy=self.copy_mode
        )

    def _store(self, place: Place, settings: Settings) -> Any:
        scope = settings.scope or default_scope(self._instance)
        return session_store(settings.address, scope, place.session, settings.session_ttl)


def _now(said: T | None) -> T | None:
    """Return a setting unless its value is known only when a step runs."""
    return None if isinstance(said, (EnvVar, type(EnvVar.int("")))) else said


def _variable(name: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise InvalidArgument(f"session_ttl_seconds comes from the environment variable {name}, which is not set")
    return found
