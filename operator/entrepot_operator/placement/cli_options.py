"""Command-line options and settings for how stores are configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot_operator.placement.names import ClusterConfig

if TYPE_CHECKING:
    import argparse

_NO_SHARED_MEMORY = "none"


def add_cluster_config_options(parser: argparse._ActionsContainer) -> None:
    """Add ``--socket-folder`` and ``--shared-memory`` to a subcommand or a group of its options."""
    defaults = ClusterConfig()
    parser.add_argument(
        "--socket-folder",
        default=defaults.socket_folder,
        help=f"folder of the store's socket on every node (default: {defaults.socket_folder})",
    )
    parser.add_argument(
        "--shared-memory",
        default=defaults.shared_memory,
        metavar="SIZE",
        help="size limit of /dev/shm, such as 1Gi; none: do not mount it (default: the pod's memory limit)",
    )


def make_cluster_config(socket_folder: str | None, shared_memory: str | None) -> ClusterConfig:
    """The configuration with these settings.

    Args:
        socket_folder: as in ``ClusterConfig``; None: the default.
        shared_memory: as in ``ClusterConfig``, but ``"none"``: nothing is mounted there; None: the default.

    Raises:
        InvalidArgument: a value is out of range.
    """
    defaults = ClusterConfig()
    memory = defaults.shared_memory if shared_memory is None else shared_memory
    return ClusterConfig(
        socket_folder=defaults.socket_folder if socket_folder is None else socket_folder,
        shared_memory=None if memory == _NO_SHARED_MEMORY else memory,
    )
