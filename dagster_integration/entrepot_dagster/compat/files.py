"""The files of an output, of IO managers that write some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagster import UPathIOManager

if TYPE_CHECKING:
    from dagster import InputContext, OutputContext
    from upath import UPath


def files_of(manager: UPathIOManager, context: OutputContext) -> list[UPath]:
    """Return where an output is, or would be: a file, or one for each of its partitions.

    Args:
        manager: the IO manager.
        context: of the output.
    """
    if context.has_asset_key and context.has_asset_partitions:
        return list(manager._get_paths_for_partitions(context).values())
    return [manager._get_path(context)]


def files_of_partitions(manager: UPathIOManager, context: InputContext) -> dict[str, UPath]:
    """Return where the partitions that an input reads are, or would be, by partition key.

    Args:
        manager: the IO manager.
        context: of an input with partitions.
    """
    return dict(manager._get_paths_for_partitions(context))


def says_of_partitions(manager: UPathIOManager) -> bool:
    """Return whether its class has a ``has_output`` of its own: Dagster's looks at the folder of all partitions."""
    return type(manager).has_output is not UPathIOManager.has_output
