"""The component: IO manager, resource and sensors of a code location, from YAML."""

# Annotations are not postponed here: Dagster looks at those of the class's fields.
from dagster import (
    Component,
    ComponentLoadContext,
    DefaultSensorStatus,
    Definitions,
    FilesystemIOManager,
    IOManager,
    Model,
    Resolvable,
    SensorDefinition,
)
from pydantic import Field

from entrepot_dagster.failure_reports import store_failure_sensor
from entrepot_dagster.io_manager import EntrepotIOManager
from entrepot_dagster.resource import EntrepotResource
from entrepot_dagster.sensors import policy_sensors
from entrepot_dagster.tiered_io_manager import TieredIOManager


class DurableFiles(Model, Resolvable):
    """A durable tier of files."""

    base_dir: str = Field(description="Folder that gets what outlives the store.", examples=["/data/assets"])
    background: bool = Field(default=False, description="Whether assets are written while the step goes on.")


class EntrepotComponent(Component, Model, Resolvable):
    """Passes values between steps by object ID, through shared memory: the IO manager, and a resource of the store.

    Settings not given here come from ``ENTREPOT_*``, then from defaults.
    """

    io_manager_key: str = Field(default="io_manager", description="Key of the IO manager among the resources.")
    resource_key: str | None = Field(
        default="entrepot", description="Key of the EntrepotResource; null: there is none."
    )
    address: str | None = Field(
        default=None, description="Address of the store.", examples=["unix:///run/entrepot/store.sock"]
    )
    scope: str | None = Field(
        default=None, description="Name of this deployment; unset: the instance's storage ID.", examples=["sales"]
    )
    copy_mode: str | None = Field(
        default=None, description="How inputs are read: never (read-only), on_write or always.", examples=["on_write"]
    )
    object_strings: str | None = Field(
        default=None,
        description="What pandas columns of Python's strings are read as: object or arrow.",
        examples=["arrow"],
    )
    session_ttl: int | float | str | None = Field(
        default=None, description="How long a run's outputs are kept after their last use.", examples=["24h", 3600]
    )
    allocate: bool | None = Field(default=None, description="Whether steps' large values are made in the store.")
    reserve: bool | str | None = Field(
        default=None, description="What a step reserves in the store: off, measured or a size.", examples=["2GiB"]
    )
    reserve_timeout: str | None = Field(
        default=None, description="How long a step waits for what it reserves.", examples=["10min"]
    )
    policy: bool | str | None = Field(
        default=None, description="Policy file for checkpoints and failover; off: no policy.", examples=["policy.yaml"]
    )
    preview_rows: int = Field(default=5, description="First rows of a table for Dagster's pages; 0: none.")
    durable: DurableFiles | None = Field(default=None, description="Folder to which outputs are written as well.")
    failure_sensor: bool = Field(
        default=False, description="Whether a sensor explains runs that failed because of the store."
    )

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """Return the resources, and the sensors of the policy, if there is one.

        Raises:
            InvalidArgument: a setting is out of range, or the policy file does not exist.
            PolicyError: the policy is invalid.
        """
        policy = _word(self.policy)
        store = EntrepotIOManager(
            address=self.address,
            scope=self.scope,
            copy=self.copy_mode,
            object_strings=self.object_strings,
            session_ttl_seconds=self.session_ttl,
            allocate=self.allocate,
            reserve=_word(self.reserve),
            reserve_timeout=self.reserve_timeout,
            policy=policy,
            preview_rows=self.preview_rows,
        )
        manager: IOManager = store
        if self.durable is not None:
            files = FilesystemIOManager(base_dir=self.durable.base_dir)
            manager = TieredIOManager(store=store, durable=files, background=self.durable.background)
        resources: dict[str, object] = {self.io_manager_key: manager}
        if self.resource_key is not None:
            resources[self.resource_key] = EntrepotResource(
                address=self.address,
                scope=self.scope,
                session_ttl=None if self.session_ttl is None else str(self.session_ttl),
            )
        sensors: list[SensorDefinition] = policy_sensors(policy=policy)
        if self.failure_sensor:
            sensors.append(store_failure_sensor(default_status=DefaultSensorStatus.RUNNING))
        return Definitions(resources=resources, sensors=sensors)


def _word(value: bool | str | None) -> str | None:
    """A setting that is a word: YAML has ``off`` as the boolean false, and ``on``, which no setting takes, as true."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value
