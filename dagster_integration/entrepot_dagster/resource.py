"""The resource: a session of the store, for assets and ops that use objects by name, collections or streams."""

# Annotations are not postponed here: Dagster looks at those of the class's fields.
from typing import TYPE_CHECKING, Any

from dagster import ConfigurableResource, DagsterInstance, InitResourceContext
from entrepot_io.connections import session_store
from entrepot_io.sessions import SCOPE_SESSION, parse_ttl
from entrepot_io.settings import resolve
from pydantic import Field, PrivateAttr

from entrepot_dagster.values.keys import default_scope

if TYPE_CHECKING:
    from entrepot import Store


class EntrepotResource(ConfigurableResource[Any]):
    """Opens a session of the store.

        @asset
        def parts(entrepot: EntrepotResource) -> None:
            entrepot.store().collection("parts").put(table, index=0)

        Definitions(assets=[parts], resources={"entrepot": EntrepotResource()})

    Settings not given here come from ``ENTREPOT_*``, then from defaults. The scope is that of ``EntrepotIOManager``.
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

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Learn which deployment this is; the store is connected to when it is asked for."""
        self._instance = context.instance

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
