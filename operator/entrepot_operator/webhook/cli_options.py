"""The webhook's command-line options."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from entrepot.errors import InvalidArgument

from entrepot_operator.placement.cli_options import add_cluster_config_options
from entrepot_operator.webhook.settings import PORT, Settings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the webhook's options to a subcommand."""
    group = parser.add_argument_group("webhook")
    group.add_argument("--no-webhook", action="store_true", help="do not serve the webhook")
    group.add_argument("--webhook-host", default="", metavar="ADDRESS", help="address to listen on (default: all)")
    group.add_argument("--webhook-port", type=int, default=PORT, metavar="N", help=f"port to use (default: {PORT})")
    group.add_argument(
        "--webhook-name",
        action="append",
        default=[],
        metavar="NAME",
        help="additional DNS name or IP address of the webhook, besides those of its Service; repeatable",
    )
    group.add_argument(
        "--webhook-certificates",
        type=Path,
        metavar="FOLDER",
        help="folder with externally renewed tls.crt and tls.key, e.g. by cert-manager (default: self-issued)",
    )
    group.add_argument("--without-mounts", action="store_true", help="place pods near their data without adding mounts")
    group.add_argument("--no-events", action="store_true", help="report problems of pods as warnings only")
    add_cluster_config_options(group)


def settings_from_arguments(arguments: argparse.Namespace, namespace: str) -> Settings | None:
    """The settings given by the options; None: no webhook.

    Args:
        arguments: with the options.
        namespace: the webhook's namespace.

    Raises:
        InvalidArgument: a value is out of range.
    """
    if arguments.no_webhook:
        return None
    check_dependencies()
    return Settings(
        namespace=namespace,
        host=arguments.webhook_host,
        port=arguments.webhook_port,
        names=tuple(arguments.webhook_name),
        certificates=arguments.webhook_certificates,
        mounts=not arguments.without_mounts,
        events=not arguments.no_events,
    )


def check_dependencies() -> None:
    """Check that the webhook's dependencies are installed.

    Raises:
        InvalidArgument: one is missing; the message says what to do.
    """
    for name in ("aiohttp", "cryptography"):
        if find_spec(name) is None:
            raise InvalidArgument(f"the webhook needs {name}: pip install 'entrepot[operator]', or pass --no-webhook")
