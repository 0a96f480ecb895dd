"""Options of the subcommands that watch a store and serve what they see: ``entrepot metrics``, ``ui`` and ``top``."""

from __future__ import annotations

import argparse

from entrepot._cli.common import duration_option
from entrepot.errors import InvalidArgument


def add_watch_options(
    parser: argparse.ArgumentParser, interval: float, asked: str = "how often the store is asked"
) -> None:
    """Add ``--address`` and ``--interval``.

    Args:
        parser: of the subcommand.
        interval: default, in seconds.
        asked: what the interval is.
    """
    parser.add_argument("--address", help="unix:///path of the store (default: ENTREPOT_ADDRESS, or the private store)")
    parser.add_argument(
        "--interval",
        type=duration_option,
        default=interval,
        metavar="TIME",
        help=f"{asked} (default {interval:g}s)",
    )


def check_interval(seconds: float) -> float:
    """Return the interval.

    Raises:
        InvalidArgument: it is not positive.
    """
    if seconds <= 0:
        raise InvalidArgument(f"--interval {seconds:g} must be more than 0 seconds")
    return seconds


def parse_listen(text: str, example: str) -> tuple[str, int]:
    """Split ``HOST:PORT``; the host may be an IPv6 address in brackets.

    Args:
        text: value of ``--listen``.
        example: of such an address.

    Raises:
        InvalidArgument: it is not of this form.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidArgument(f"--listen must be HOST:PORT, such as {example}, not {text!r}")
    return host.strip("[]"), int(port)
