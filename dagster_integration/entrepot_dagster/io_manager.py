"""The IO manager: writes outputs to the store under keys derived from Dagster's own names, and reads inputs from there.

Partitions behave as in Dagster's file-based IO managers: an input with several partitions is a dictionary by partition
key, or one table if it is annotated as one, and one with no partitions is ``None``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dagster import (
    ConfigurableIOManager,
    DagsterInstance,
    EnvVar,
    InitResourceContext,
    InputContext,
    OutputContext,
)
from entrepot.errors import InvalidArgument
from entrepot_io.sessions import parse_ttl
from entrepot_io.settings import (
    Settings,
    address_setting,
    copy_mode,
    object_strings_setting,
    reserve_setting,
    resolve,
    scope_setting,
    switch,
)
from pydantic import Field, PrivateAttr

from entrepot_dagster.compat.steps import covers_range
from entrepot_dagster.step_reservations import StepReservations
from entrepot_dagster.values.deferred_settings import check_names, read_deferred, unless_deferred
from entrepot_dagster.values.input_metadata import report_copies
from entrepot_dagster.values.keys import default_scope
from entrepot_dagster.values.lazy_outputs import collected
from entrepot_dagster.values.lost_inputs import no_retries_in_vain
from entrepot_dagster.values.partition_outputs import of_only_partition
from entrepot_dagster.values.partition_tables import split_by_partition
from entrepot_dagster.values.typed_inputs import InputType, TypeHandler, annotation_of, in_order, input_type

if TYPE_CHECKING:
    from entrepot_dagster.policy.policy_runtime import PolicyBinding, StepPolicy
    from entrepot_dagster.stored_values import StoredValues

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
    object_strings: str | None = Field(
        default=None,
        description="What pandas columns of Python's strings are read as: object (as they were put), or arrow, which "
        "reads them as pandas' str without making a Python object of each value; unset: ENTREPOT_OBJECT_STRINGS, "
        "else object.",
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
        address_setting(unless_deferred(self.address))
        scope_setting(unless_deferred(self.scope))
        copy_mode(unless_deferred(self.copy_mode))
        object_strings_setting(unless_deferred(self.object_strings))
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
        # While the step is set up, not while it passes its first value.
        import_module("entrepot_dagster.stored_values").import_codecs()
        self._instance = context.instance
        self._step_policy = None
        settings = self._settings()
        if settings.allocate is not False:
            from entrepot_io.connections import make_values_in_store

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
        """Write an output and record its reference as metadata.

        Of a Polars ``LazyFrame`` or Arrow's ``RecordBatchReader``, the rows are stored. Of one table for several
        partitions, each gets the rows that the column in the output definition's metadata ``partition_expr`` says.
        The metadata ``entrepot/locality_set``, a name or a mapping of ``name`` and attributes, selects its locality
        set.

        Raises:
            InvalidArgument: the output belongs to several partitions and is neither a dictionary of these nor such a
                table, or there is a policy; or its locality set is malformed.
            StoreFull: it does not fit.
            UnsupportedType: no codec supports it.
            StoreUnavailable: the store cannot be reached.
        """
        obj = split_by_partition(context, of_only_partition(context, collected(context, obj)))
        settings = self._settings()
        self._reserve(context, settings)
        values = self._stored_values(settings)
        metadata = {**values.write(context, obj, self.preview_rows), **self.get_metadata(context, obj)}
        own = context.output_metadata or {}  # what the step itself says takes precedence
        context.add_output_metadata({name: entry for name, entry in metadata.items() if name not in own})
        values.sweep()

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
            Failure: the same, where only the step that wrote it can bring it back, and the step that reads it has a
                retry policy: there are no retries, as none could succeed.
            UnsupportedType: it has no such form.
            InvalidArgument: it has no such column.
            StoreUnavailable: the store cannot be reached.
        """
        wanted = self._input_type(context)
        with no_retries_in_vain(context):
            value = self._load(context, wanted, none_if_missing=wanted.is_optional, allow_missing=wanted.allows_missing)
        return report_copies(context, value, wanted.unread)

    def load_existing(self, context: InputContext) -> Any:
        """Read an input of which nothing may be missing: as :meth:`load_input`, but all of it was written.

        For IO managers that have another place to look, such as ``TieredIOManager``.

        Raises:
            as :meth:`load_input`, except that what is lost is ``ObjectLost`` in any case.
        """
        wanted = self._input_type(context)
        value = self._load(context, wanted, none_if_missing=False, allow_missing=False)
        return report_copies(context, value, wanted.unread)

    def is_optional(self, context: InputContext) -> bool:
        """Return whether an input that was never written is None: whether its annotation is ``Optional[...]``."""
        return self._input_type(context).is_optional

    def allows_missing(self, context: InputContext) -> bool:
        """Return whether several partitions of an input leave out those that were never written."""
        return self._input_type(context).allows_missing

    def in_form(self, context: InputContext, value: Any) -> Any:
        """Return an input that another IO manager has read, in the form that its annotation asks for.

        For IO managers that have another place to look, such as ``TieredIOManager``.

        Args:
            context: of the input.
            value: as the other one has it; several partitions may be a dictionary or, from a database, one table.

        Raises:
            UnsupportedType: it has no such form.
            InvalidArgument: it has no such column.
        """
        wanted = self._input_type(context)
        if not (context.has_asset_key and context.has_asset_partitions):
            return wanted.of(value)
        partitions = in_order(context.asset_partition_keys, context.asset_partitions_def, self._instance)
        if len(partitions) == 1:
            return wanted.of_only_partition(partitions[0], value, in_range=covers_range(context))
        if not isinstance(value, Mapping) or not set(value) <= set(partitions):
            return wanted.of(value)
        by_partition = {partition: value[partition] for partition in partitions if partition in value}
        return wanted.of_partitions(by_partition) if by_partition else wanted.of_no_partition()

    def _input_type(self, context: InputContext) -> InputType:
        if context.has_asset_key:
            source = f"the asset {context.asset_key.to_user_string()}"
        else:
            source = f"the input {context.name}" if context.has_input_name else "the value"  # as of a run's result
        return input_type(annotation_of(context), context.definition_metadata, self.type_handlers(), source)

    def _load(self, context: InputContext, wanted: InputType, *, none_if_missing: bool, allow_missing: bool) -> Any:
        settings = self._settings()
        self._reserve(context, settings)
        values = self._stored_values(settings)
        return values.read(context, wanted, none_if_missing=none_if_missing, allow_missing=allow_missing)

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
        return self._stored_values(self._settings()).has(context)

    def delete(self, context: OutputContext) -> bool:
        """Delete an output, or all of its partitions, from the store; return whether anything was there.

        Dagster does not call this: for your code.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        return self._stored_values(self._settings()).delete(context)

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
            object_strings=self.object_strings,
            allocate=self.allocate,
            reserve=self.reserve,
            reserve_timeout=self.reserve_timeout,
        )

    def _reserve(self, context: InputContext | OutputContext, settings: Settings) -> None:
        self._step_reservations.begin(context, settings, settings.scope or default_scope(self._instance))

    def _stored_values(self, settings: Settings) -> StoredValues:
        # Imported late: code servers, daemons and runs' own processes load definitions, and set up no resources.
        from entrepot_dagster.stored_values import StoredValues

        return StoredValues(settings, self._instance, self._get_step_policy())
