"""Command-line options and settings for how stores are configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot_io.placement.names import Site

if TYPE_CHECKING:
    import argparse

_NO_SHARED_MEMORY = "none"


def add_site_options(parser: argparse._ActionsContainer) -> None:
    """Add ``--socket-folder`` and ``--shared-memory`` to a subcommand or a group of its options."""
    usual = Site()
    parser.add_argument(
        "--socket-folder",
        default=usual.socket_folder,
        help=f"of the store, on every node (default: {usual.socket_folder})",
    )
    parser.add_argument(
        "--shared-memory",
        default=usual.shared_memory,
        metavar="SIZE",
        help="limit of /dev/shm, such as 1Gi; none: nothing is mounted there (default: the pod's memory limit)",
    )


def site_of(socket_folder: str | None, shared_memory: str | None) -> Site:
    """The site with these settings.

    Args:
        socket_folder: as in ``Site``; None: the default.
        shared_memory: as in ``Site``, but ``"none"``: nothing is mounted there; None: the default.

    Raises:
        InvalidArgument: a value is out of range.
    """
    usual = Site()
    memory = usual.shared_memory if shared_memory is None else shared_memory
    return Site(
        socket_folder=usual.socket_folder if socket_folder is None else socket_folder,
        shared_memory=None if memory == _NO_SHARED_MEMORY else memory,
    )
