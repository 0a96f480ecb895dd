"""Whether a durable tier has an output, and how it forgets one. Dagster's IO managers have no method for that.

Those of files (``UPathIOManager``) say where their files are; others may have ``has_output`` and ``delete``, as
``EntrepotIOManager`` has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from dagster import InputContext, IOManager, OutputContext, UPathIOManager
from entrepot.errors import InvalidArgument

from entrepot_dagster.compat.files import files_of, files_of_partitions, says_of_partitions
from entrepot_dagster.compat.steps import with_resource_config
from entrepot_dagster.durable_configuration import ConfiguredTier

C = TypeVar("C", InputContext, OutputContext)


def durable_has(tier: IOManager, context: OutputContext) -> bool:
    """Return whether a durable tier has an output; of several partitions, whether it has all. One that cannot tell has
    none.

    Raises:
        what the IO manager raises.
    """
    manager, own_context = _own(tier, context)
    if isinstance(manager, UPathIOManager) and not says_of_partitions(manager):
        return all(manager.path_exists(path) for path in files_of(manager, own_context))
    has_output = getattr(manager, "has_output", None)
    return has_output is not None and bool(has_output(own_context))


def left_out(tier: IOManager, context: InputContext, value: Any) -> list[str]:
    """Return the partitions that a durable tier of files has left out of an input, as it has no file of them. Others
    do not say.

    Args:
        tier: it has read the input.
        context: of the input.
        value: what it has read.
    """
    manager, own_context = _own(tier, context)
    if not isinstance(manager, UPathIOManager):
        return []
    partitions = context.asset_partition_keys
    if len(partitions) == 1:
        absent = partitions if value is None else []
    else:
        absent = [partition for partition in partitions if isinstance(value, Mapping) and partition not in value]
    if not absent:
        return []
    files = files_of_partitions(manager, own_context)  # what is absent may also be a stored None
    return [partition for partition in absent if not manager.path_exists(files[partition])]


def name_of_tier(tier: IOManager) -> str:
    """Return what errors call a durable tier: the class of its IO manager."""
    return type(tier.manager if isinstance(tier, ConfiguredTier) else tier).__name__


def check_deletes(tier: IOManager) -> None:
    """Check that a durable tier can delete outputs.

    Raises:
        InvalidArgument: it cannot.
    """
    manager = tier.manager if isinstance(tier, ConfiguredTier) else tier
    if not hasattr(manager, "delete") and not isinstance(manager, UPathIOManager):
        raise InvalidArgument(
            f"the durable tier, {name_of_tier(tier)}, has no method delete(context), and no files of a "
            "UPathIOManager: delete the asset there, and then from the tier store="
        )


def delete_durable(tier: IOManager, context: OutputContext) -> bool:
    """Delete an output, or all of its partitions, from a durable tier; return whether anything was there.

    Raises:
        what the IO manager raises.
    """
    manager, own_context = _own(tier, context)
    if not isinstance(manager, UPathIOManager):
        deleter: Any = manager
        return bool(deleter.delete(own_context))
    existing = [path for path in files_of(manager, own_context) if manager.path_exists(path)]
    for path in existing:
        manager.unlink(path)
    return bool(existing)


def _own(tier: IOManager, context: C) -> tuple[IOManager, C]:
    """A tier's IO manager, and the context with its configuration."""
    if isinstance(tier, ConfiguredTier):
        return tier.manager, with_resource_config(context, tier.config)
    return tier, context
