"""The resource: a session of the store, for assets and ops that use objects by name, collections or streams."""

# Annotations are not postponed here: Dagster looks at those of the class's fields.
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

from dagster import ConfigurableResource, DagsterInstance, InitResourceContext
from entrepot._daemon.settings import SESSION_MAX_BYTES, check_length
from entrepot_io.connections import scope_store, session_store
from entrepot_io.sessions import SCOPE_SESSION, parse_ttl
from entrepot_io.settings import address_setting, resolve, scope_setting
from entrepot_io.values import get_value
from pydantic import Field, PrivateAttr

from entrepot_dagster.values.deferred_settings import check_names, unless_deferred
from entrepot_dagster.values.keys import default_scope

if TYPE_CHECKING:
    from dagster import AssetExecutionContext, OpExecutionContext, PipesClientCompletedInvocation
    from entrepot import Store


class EntrepotResource(ConfigurableResource[Any]):
    """Opens a session of the store.

        @asset
        def parts(entrepot: EntrepotResource) -> None:
            entrepot.store().collection("parts").put(table, index=0)

        Definitions(assets=[parts], resources={"entrepot": EntrepotResource()})

    Settings not given here come from ``ENTREPOT_*``, then from defaults. The scope is that of ``EntrepotIOManager``.

    >>> import dagster
    >>> @dagster.asset
    ... def stored_parts(entrepot: EntrepotResource) -> None:
    ...     entrepot.store().put(b"a part", name="part", replace=True)
    >>> dagster.materialize([stored_parts], resources={"entrepot": EntrepotResource()}).success
    True
    """

    address: str | None = Field(default=None, description="Address of the store; unset: the user's private store.")
    scope: str | None = Field(default=None, description="Name of this deployment; unset: the instance's storage ID.")
    session: str = Field(
        default=SCOPE_SESSION, description="Name of the session; default: the scope's own, which never expires."
    )
    session_ttl: str | None = Field(
        default=None, description='How long a named session lives after its last use, such as "12h"; unset: 24 hours.'
    )

    _instance: DagsterInstance | None = PrivateAttr(default=None)

    def __init__(self, **data: Any) -> None:
        """Check the settings.

        Raises:
            InvalidArgument: one does not exist, or is out of range.
        """
        check_names(type(self), data)
        super().__init__(**data)
        address_setting(unless_deferred(self.address))
        scope_setting(unless_deferred(self.scope))
        if (session := unless_deferred(self.session)) is not None:
            check_length("session", session, SESSION_MAX_BYTES)
        parse_ttl(unless_deferred(self.session_ttl))

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Learn which deployment this is; the store is connected to when it is asked for.

        Raises:
            InvalidArgument: a setting that was an EnvVar is malformed.
        """
        self._instance = context.instance
        resolve(address=self.address, scope=self.scope)

    def store(self, session: str | None = None) -> "Store":
        """Return the session. Its connection belongs to the process: do not close it.

        Args:
            session: another one than the resource's.

        Raises:
            StoreUnavailable: nothing answers at the store's address.
            InvalidArgument: a malformed setting.
        """
        settings = resolve(address=self.address, scope=self.scope)
        scope = settings.scope or default_scope(self._instance)
        name = self.session if session is None else session
        return session_store(settings.address, scope, name, parse_ttl(self.session_ttl))

    def pipes_extras(
        self, context: Union["AssetExecutionContext", "OpExecutionContext"], extras: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the ``extras`` of a Pipes client, by which its external process reads and writes objects.

            @asset(deps=[orders])
            def totals(context: AssetExecutionContext, pipes: PipesSubprocessClient, entrepot: EntrepotResource):
                extras = entrepot.pipes_extras(context)
                return pipes.run(context=context, command=["python", "totals.py"], extras=extras).get_results()

        The process gets and puts values by ``PipesValues``; what it puts is the asset, which the IO manager reads in
        downstream steps.

        Args:
            context: of the step.
            extras: others for the process.

        Raises:
            InvalidReference: the event log holds a damaged one.
            StoreUnavailable: nothing answers at the store's address.
        """
        from entrepot_dagster.pipes_task import external_task
        from entrepot_dagster.pipes_values import EXTRA

        settings = resolve(address=self.address, scope=self.scope)
        scope = settings.scope or default_scope(context.instance)
        task = external_task(
            context,
            address=settings.address or str(scope_store(None, scope).address),
            scope=scope,
            explicit_scope=settings.scope is not None,
            session_ttl=settings.session_ttl,
        )
        return {**(extras or {}), EXTRA: task.to_dict()}

    def pipes_output(self, invocation: "PipesClientCompletedInvocation", output: str = "result") -> Any:
        """Return what the external process has put as an op's output: a view of the store's memory.

        The IO manager then stores it once more, under the op's own key, without copying its bytes.

        Args:
            invocation: as returned by the Pipes client's ``run``.
            output: name of the output.

        Raises:
            ObjectNotFound: the process has put none.
            ObjectLost: it is no longer in the store.
            StoreUnavailable: the store cannot be reached.
        """
        from entrepot_dagster.pipes_task import op_output

        reference = op_output(invocation.get_custom_messages(), output)
        return get_value(reference, address=resolve(address=self.address).address)
