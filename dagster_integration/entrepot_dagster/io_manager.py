"""The IO manager: writes outputs to the store under keys derived from Dagster's own names, and reads inputs from there.

Partitions behave as in Dagster's file-based IO managers: an input with several partitions is a dictionary by partition
key, or one table if it is annotated as one, and one with no partitions is ``None``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagster import (
    ConfigurableIOManager,
    DagsterInstance,
    EnvVar,
    InitResourceContext,
    InputContext,
    MetadataValue,
    OutputContext,
)
from entrepot.errors import InvalidArgument, ObjectNotFound
from entrepot_io.connections import make_values_in_store, session_store
from entrepot_io.reference import Reference
from entrepot_io.sessions import SCOPE_SESSION, parse_ttl
from entrepot_io.settings import Settings, copy_mode, reserve_setting, resolve, switch
from entrepot_io.usage_hints import parse_usage_hints
from entrepot_io.values import delete_by_key, get_by_key, key_exists, prefetch_values, put_value
from pydantic import Field, PrivateAttr

from entrepot_dagster.compat.steps import covers_range
from entrepot_dagster.session_sweeper import sweep
from entrepot_dagster.step_reservations import StepReservations
from entrepot_dagster.traced_runs import traced_in_run
from entrepot_dagster.values.deferred_settings import check_names, read_deferred, unless_deferred
from entrepot_dagster.values.deployments import register_deployment
from entrepot_dagster.values.input_metadata import report_copies
from entrepot_dagster.values.keys import OutputKey, default_scope, key_of_asset, key_of_output
from entrepot_dagster.values.lazy_outputs import collected
from entrepot_dagster.values.output_metadata import (
    memory_metadata,
    partitions_metadata,
    reference_metadata,
    table_metadata,
)
from entrepot_dagster.values.partition_outputs import check_partitions, of_only_partition
from entrepot_dagster.values.read_only_advice import add_read_only_advice
from entrepot_dagster.values.reference_log import recorded_asset, recorded_output
from entrepot_dagster.values.typed_inputs import InputType, TypeHandler, annotation_of, in_order, input_type

if TYPE_CHECKING:
    from entrepot_dagster.policy.policy_runtime import PolicyBinding, StepPolicy

LOCALITY_SET = "entrepot/locality_set"
POLICY_VARIABLE = "ENTREPOT_POLICY"


class EntrepotIOManager(ConfigurableIOManager):
    """Passes outputs by object ID, through shared memory.

    Assets are written in place and stay until they are written again; outputs of ops end with their run's session.
    Settings not given here come from ``ENTREPOT_*``, then from defaults.

    >>> import dagster
    >>> @dagster.asset
    ... def numbers() -> list[int]:
    ...     return [1, 2, 3]
    >>> run = dagster.materialize([numbers], resources={"io_manager": EntrepotIOManager()})
    >>> run.output_for_node("numbers")
    [1, 2, 3]
    """

    address: str | None = Field(default=None, description="Address of the store; unset: the user's private store.")
    scope: str | None = Field(default=None, description="Name of this deployment; unset: the instance's storage ID.")
    copy_mode: str | None = Field(
        default=None, alias="copy", description="Copy mode for reading inputs: never (read-only), on_write or always."
    )
    # A number or a string such as "24h", and below a boolean or an EnvVar; Dagster's configuration has no such types.
    session_ttl_seconds: Any = Field(
        default=None, description="How long a run's outputs are kept after their last use; unset: 24 hours."
    )
    allocate: Any = Field(
        default=None,
        description="Whether NumPy and Arrow make steps' large values in the store; unset: ENTREPOT_ALLOCATE, "
        "else yes.",
    )
    reserve: str | None = Field(
        default=None,
        description="What a step reserves in the store before it runs: off, measured or a size; unset: "
        "ENTREPOT_RESERVE, else off. The tag entrepot/reserve of an op takes precedence.",
    )
    reserve_timeout: str | None = Field(
        default=None,
        description="How long a step waits for that before it runs without; unset: ENTREPOT_RESERVE_TIMEOUT, else "
        "10min.",
    )
    policy: str | None = Field(
        default=None, description="Policy file for checkpoints and failover; unset: ENTREPOT_POLICY; off: no policy."
    )
    preview_rows: int = Field(
        default=5, description="How many first rows of a table Dagster's database gets for its pages; 0: none."
    )

    _instance: DagsterInstance | None = PrivateAttr(default=None)
    _step_policy: Any = PrivateAttr(default=None)  # StepPolicy, once there is a policy
    _step_reservations: StepReservations = PrivateAttr(default_factory=StepReservations)

    def __init__(self, **data: Any) -> None:
        """Check the settings and the policy, so that errors are reported when definitions are loaded.

        Raises:
            PolicyError: the policy is invalid; the message has file and line.
            InvalidArgument: the policy file does not exist, or a setting is out of range or does not exist.
        """
        check_names(type(self), data)
        read_deferred(data, "session_ttl_seconds", "allocate")
        super().__init__(**data)
        copy_mode(unless_deferred(self.copy_mode))
        parse_ttl(unless_deferred(self.session_ttl_seconds))
        switch("allocate", unless_deferred(self.allocate))
        reserve_setting(unless_deferred(self.reserve))
        if (timeout := unless_deferred(self.reserve_timeout)) is not None:
            resolve(reserve_timeout=timeout)
        if (unless_deferred(self.preview_rows) or 0) < 0:
            raise InvalidArgument(f"preview_rows must be 0 or more, not {self.preview_rows}")
        if self._has_policy() and not isinstance(self.policy, EnvVar):  # an EnvVar's value is known only in a step
            from entrepot_policy import find_policy

            find_policy(self.policy)

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Store the instance, check the policy and prepare the store, unless it cannot be reached now.

        Raises:
            PolicyError: the policy is invalid or, before a run's first step, its targets are not writable.
            StoreUnavailable: ``allocate`` is set to True, and the store cannot be reached.
        """
        self._instance = context.instance
        self._step_policy = None
        settings = self._settings()
        if settings.allocate is not False:
            scope = settings.scope or default_scope(self._instance)
            make_values_in_store(settings.address, scope, required=settings.allocate is True)
        binding = self.policy_binding()
        if binding is not None and context.run is not None and self._instance is not None:
            from entrepot_dagster.policy.policy_runtime import check_targets, register_run

            check_targets(binding.runtime.policy, self._instance, context.run.run_id)
            register_run(context.run.run_id, binding)

    def policy_binding(self) -> PolicyBinding | None:
        """Return this process's binding of the IO manager's policy; None: there is no policy.

        Raises:
            PolicyError, InvalidArgument: the policy is invalid.
        """
        step_policy = self._get_step_policy()
        return None if step_policy is None else step_policy.binding

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output and record its reference as metadata. Of a Polars ``LazyFrame``, the result is stored.

        The output definition's metadata ``entrepot/locality_set``, a name or a mapping of ``name`` and attributes,
        selects its locality set.

        Raises:
            InvalidArgument: the output belongs to several partitions and is not a dictionary of these, or there is a
                policy; or its locality set is malformed.
            StoreFull: it does not fit.
            UnsupportedType: no codec supports it.
            StoreUnavailable: the store cannot be reached.
        """
        obj = of_only_partition(context, collected(context, obj))
        settings = self._settings()
        self._reserve(context, settings)
        if settings.scope is not None and context.has_asset_key:
            register_deployment(self._instance, session_store(settings.address, settings.scope, SCOPE_SESSION, None))
        is_partition = context.has_asset_key and context.has_asset_partitions
        if is_partition and len(context.asset_partition_keys) > 1:
            metadata: dict[str, Any] = self._write_partitions(context, obj, settings)
        else:
            reference, policy_metadata = self._write(context, self._keys_of_output(context)[0], obj, settings)
            metadata = {
                **reference_metadata(reference),
                **memory_metadata([reference], settings.address),
                **table_metadata(obj, self.preview_rows, is_partition=is_partition),
                **policy_metadata,
            }
        metadata |= self.get_metadata(context, obj)
        own = context.output_metadata or {}  # what the step itself says takes precedence
        context.add_output_metadata({name: entry for name, entry in metadata.items() if name not in own})
        if settings.scope is None:  # one set by the user may be shared by instances that do not know each other's runs
            sweep(
                self._instance,
                settings.address,
                lambda: session_store(settings.address, self._scope(settings), SCOPE_SESSION, settings.session_ttl),
            )

    def _write(
        self, context: OutputContext, output_key: OutputKey, obj: Any, settings: Settings
    ) -> tuple[Reference, Mapping[str, MetadataValue[Any]]]:
        locality_set = parse_usage_hints((context.definition_metadata or {}).get(LOCALITY_SET))

        def put() -> Reference:
            with traced_in_run(context, settings, self._scope(settings)):
                return put_value(self._store(output_key, settings), output_key.key, obj, usage_hints=locality_set)

        step_policy = self._get_step_policy()
        if step_policy is None:
            return put(), {}
        return step_policy.write(context, output_key, lambda: self._store(output_key, settings), put)

    def _write_partitions(self, context: OutputContext, obj: Any, settings: Settings) -> dict[str, MetadataValue[Any]]:
        """Write one output with several partitions, as a backfill in a single run has it: a dictionary of them."""
        partitions = context.asset_partition_keys
        check_partitions(context.asset_key.to_user_string(), partitions, obj, has_policy=self._has_policy())
        references = {
            partition: self._write(
                context, self._key_of_asset(context.asset_key.path, partition), obj[partition], settings
            )[0]
            for partition in partitions
        }
        return {
            **partitions_metadata(references),
            **memory_metadata(references.values(), settings.address),
            **table_metadata(obj[partitions[0]], self.preview_rows, is_partition=True, with_rows=False),
        }

    def load_input(self, context: InputContext) -> Any:
        """Read an input, in the form that its annotation asks for, whatever was stored.

        ``pd.DataFrame``, ``pl.DataFrame``, ``pl.LazyFrame``, ``pa.Table``, ``pa.RecordBatchReader``, ``np.ndarray`` and
        the types of :meth:`type_handlers` are converted to, without a copy where that is possible. Several partitions
        of an input that is annotated as a table are one table; otherwise they are a dictionary by partition. With
        ``Optional[...]``, an input that was never written is None; with ``dict[str, Optional[...]]``, such partitions
        are left out. The input definition's metadata ``columns`` selects columns.

        Raises:
            ObjectNotFound: it was never written.
            ObjectLost: it was written, but lives on another host or is no longer in the store.
            UnsupportedType: it has no such form.
            InvalidArgument: it has no such column.
            StoreUnavailable: the store cannot be reached.
        """
        wanted = self._input_type(context)
        value = self._load(context, wanted, none_if_missing=wanted.is_optional, allow_missing=wanted.allows_missing)
        return report_copies(context, value)

    def load_existing(self, context: InputContext) -> Any:
        """Read an input of which nothing may be missing: as :meth:`load_input`, but all of it was written.

        For IO managers that have another place to look, such as ``TieredIOManager``.

        Raises:
            as :meth:`load_input`.
        """
        value = self._load(context, self._input_type(context), none_if_missing=False, allow_missing=False)
        return report_copies(context, value)

    def is_optional(self, context: InputContext) -> bool:
        """Return whether an input that was never written is None: whether its annotation is ``Optional[...]``."""
        return self._input_type(context).is_optional

    def _input_type(self, context: InputContext) -> InputType:
        return input_type(annotation_of(context), context.definition_metadata, self.type_handlers())

    def _load(self, context: InputContext, wanted: InputType, *, none_if_missing: bool, allow_missing: bool) -> Any:
        self._reserve(context, self._settings())
        if not context.has_asset_key:
            return wanted.of(self._load_output(context))
        if not context.has_asset_partitions:
            try:
                return wanted.of(self._read(context, *self._find_asset(context, None), lambda: None))
            except ObjectNotFound:
                if not none_if_missing:
                    raise
                return None
        return self._load_partitions(context, wanted, none_if_missing=none_if_missing, allow_missing=allow_missing)

    def _load_partitions(
        self, context: InputContext, wanted: InputType, *, none_if_missing: bool, allow_missing: bool
    ) -> Any:
        partitions = in_order(context.asset_partition_keys, context.asset_partitions_def, self._instance)
        if not partitions:
            return wanted.of_no_partition()
        loaded: dict[str, Any] = {}
        assets = {partition: self._find_asset(context, partition) for partition in partitions}
        # All of them come from other hosts at once, and not one after the other.
        recorded = [reference for _, reference in assets.values() if reference is not None]
        prefetch_values(recorded, address=self._settings().address)
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

    # --- for subclasses

    def type_handlers(self) -> Sequence[TypeHandler]:
        """Return handlers for types of your own; override this."""
        return ()

    def get_metadata(self, context: OutputContext, obj: Any) -> Mapping[str, Any]:
        """Return more metadata of an output, as with ``UPathIOManager``; override this."""
        return {}

    def has_output(self, context: OutputContext) -> bool:
        """Return whether an output is in the store; of several partitions, whether all are.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        settings = self._settings()
        return all(key_exists(self._store(each, settings), each.key) for each in self._keys_of_output(context))

    def delete(self, context: OutputContext) -> bool:
        """Delete an output, or all of its partitions, from the store; return whether anything was there.

        Dagster does not call this: for your code.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        settings = self._settings()
        deleted = [delete_by_key(self._store(each, settings), each.key) for each in self._keys_of_output(context)]
        return any(deleted)

    def _keys_of_output(self, context: OutputContext) -> list[OutputKey]:
        if not context.has_asset_key:
            return [key_of_output(context.get_identifier())]
        partitions: Sequence[str | None] = context.asset_partition_keys if context.has_asset_partitions else [None]
        return [self._key_of_asset(context.asset_key.path, partition) for partition in partitions]

    def _key_of_asset(self, path: Sequence[str], partition: str | None) -> OutputKey:
        return key_of_asset(self._instance, path, partition, explicit_scope=self._settings().scope is not None)

    def _find_asset(self, context: InputContext, partition: str | None) -> tuple[OutputKey, Reference | None]:
        output_key = self._key_of_asset(context.asset_key.path, partition)
        recorded = None
        if self._instance is not None:
            recorded = recorded_asset(self._instance, context.asset_key, partition)
            if recorded is not None and recorded.key != output_key.key:
                recorded = None
        return output_key, recorded

    def _load_output(self, context: InputContext) -> Any:
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
        settings = self._settings()
        if settings.copy == "never":
            add_read_only_advice(context)

        def get(expected_reference: Reference | None) -> Any:
            with traced_in_run(context, settings, self._scope(settings)):
                return get_by_key(
                    self._store(output_key, settings), output_key.key, copy=settings.copy, recorded=expected_reference
                )

        step_policy = self._get_step_policy()
        if step_policy is not None:
            return step_policy.read(context, output_key, recorded, find, get)
        try:
            return get(recorded)
        except ObjectNotFound:
            reference = find()
            if reference is None:
                raise
            return get(reference)  # with the reference, the error says what was lost and where

    def _has_policy(self) -> bool:
        return self.policy is not None or bool(os.environ.get(POLICY_VARIABLE))

    def _get_step_policy(self) -> StepPolicy | None:
        if self._step_policy is None and self._has_policy():
            from entrepot_dagster.policy.policy_runtime import StepPolicy, get_binding

            settings = self._settings()
            scope = settings.scope or default_scope(self._instance)
            binding = get_binding(self.policy, scope, settings.address, self._instance)
            self._step_policy = None if binding is None else StepPolicy(binding)
        step_policy: StepPolicy | None = self._step_policy
        return step_policy

    def _settings(self) -> Settings:
        return resolve(
            address=self.address,
            scope=self.scope,
            session_ttl=self.session_ttl_seconds,
            copy=self.copy_mode,
            allocate=self.allocate,
            reserve=self.reserve,
            reserve_timeout=self.reserve_timeout,
        )

    def _reserve(self, context: InputContext | OutputContext, settings: Settings) -> None:
        self._step_reservations.begin(context, settings, self._scope(settings))

    def _store(self, output_key: OutputKey, settings: Settings) -> Any:
        return session_store(settings.address, self._scope(settings), output_key.session, settings.session_ttl)

    def _scope(self, settings: Settings) -> str:
        return settings.scope or default_scope(self._instance)
