"""The configuration of a durable tier's IO manager.

Dagster's contexts have the configuration of the IO manager that Dagster calls, which is ``TieredIOManager``. There, IO
managers of databases look up which database is theirs, so the durable tier gets contexts with its own configuration.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from dagster import (
    ConfigurableIOManagerFactory,
    InitResourceContext,
    InputContext,
    IOManager,
    OutputContext,
    ResourceDefinition,
)

from entrepot_dagster.compat.steps import with_resource_config


@dataclass
class ConfiguredTier(IOManager):
    """A durable tier with the configuration that its resource was created from.

    Attributes:
        manager: its IO manager.
        config: its fields, with the values of environment variables.
    """

    manager: IOManager
    config: Mapping[str, object]

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output; its metadata are those that the IO manager adds."""
        own_context = with_resource_config(context, self.config)
        self.manager.handle_output(own_context, obj)
        context.add_output_metadata(own_context.consume_logged_metadata())

    def load_input(self, context: InputContext) -> Any:
        """Read an input."""
        return self.manager.load_input(with_resource_config(context, self.config))


def configured_tier(durable: Any) -> Any:
    """Return a resource that creates a :class:`ConfiguredTier`; anything but a resource with configuration as it is.

    Args:
        durable: what the user has given: a resource, an IO manager, or a resource that is configured at launch.
    """
    if isinstance(durable, ConfigurableIOManagerFactory):
        definition: ResourceDefinition = durable.get_resource_definition()
    elif isinstance(durable, ResourceDefinition):
        definition = durable
    else:
        return durable

    def create(context: InitResourceContext) -> AbstractContextManager[ConfiguredTier]:
        return _opened(definition, context)

    return ResourceDefinition(
        create,
        config_schema=definition.config_schema,
        description=definition.description,
        required_resource_keys=set(definition.required_resource_keys),
    )


@contextmanager
def _opened(definition: ResourceDefinition, context: InitResourceContext) -> Generator[ConfiguredTier]:
    create: Any = definition.resource_fn
    created = create(context)
    config: Mapping[str, object] = context.resource_config or {}
    if isinstance(created, AbstractContextManager):
        with created as manager:
            yield ConfiguredTier(manager, config)
    else:
        yield ConfiguredTier(created, config)
