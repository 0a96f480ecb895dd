"""The webhook's command-line options."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from entrepot.errors import InvalidArgument
from entrepot_io.placement.site_options import add_site_options

from entrepot_operator.admission.settings import PORT, Settings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the webhook's options to a subcommand."""
    group = parser.add_argument_group("webhook")
    group.add_argument("--no-webhook", action="store_true", help="pods are injected by others, or not at all")
    group.add_argument("--webhook-host", default="", metavar="ADDRESS", help="to listen on (default: all)")
    group.add_argument("--webhook-port", type=int, default=PORT, metavar="N", help=f"default: {PORT}")
    group.add_argument(
        "--webhook-name",
        action="append",
        default=[],
        metavar="NAME",
        help="DNS name or IP address by which the API server calls it, besides those of its Service",
    )
    group.add_argument(
        "--webhook-certificates",
        type=Path,
        metavar="FOLDER",
        help="with tls.crt and tls.key that somebody else renews, such as cert-manager (default: made here)",
    )
    group.add_argument("--without-mounts", action="store_true", help="draw pods, but put no mounts into them")
    group.add_argument("--no-events", action="store_true", help="problems of pods are warnings alone")
    add_site_options(group)


def settings(arguments: argparse.Namespace, namespace: str) -> Settings | None:
    """The settings given by the options; None: no webhook.

    Args:
        arguments: with the options.
        namespace: the webhook's namespace.

    Raises:
        InvalidArgument: a value is out of range.
    """
    if arguments.no_webhook:
        return None
    needs()
    return Settings(
        namespace=namespace,
        host=arguments.webhook_host,
        port=arguments.webhook_port,
        names=tuple(arguments.webhook_name),
        certificates=arguments.webhook_certificates,
        mounts=not arguments.without_mounts,
        events=not arguments.no_events,
    )


def needs() -> None:
    """Check that the webhook's dependencies are installed.

    Raises:
        InvalidArgument: one is missing; the message says what to do.
    """
    for name in ("aiohttp", "cryptography"):
        if find_spec(name) is None:
            raise InvalidArgument(f"the webhook needs {name}: pip install 'entrepot[operator]', or give --no-webhook")
