"""Subcommands ``entrepot ui`` and ``entrepot top``."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers

DEFAULT_LISTEN = "127.0.0.1:9818"
DEFAULT_INTERVAL = 1.0
DEFAULT_TOP_INTERVAL = 2.0
SWITCH_INTERVAL = 0.001  # seconds; a request changes threads several times, each time behind the one that lists objects
TOP_LIST_SHARE = 0.005  # of the time; drawing takes about as much again
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def add_subcommands(subparsers: SubParsers) -> None:
    """Add this package's subcommands."""
    from entrepot._cli.watch_options import add_watch_options

    page = subparsers.add_parser("ui", help="show a store in a browser")
    add_watch_options(page, DEFAULT_INTERVAL)
    page.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"where to serve the page (default {DEFAULT_LISTEN}; port 0: any that is free)",
    )
    page.add_argument("--token-file", type=Path, metavar="FILE", help="holds the secret (default: a random one)")
    page.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another host name by which the page is reached, such as a proxy's; may be repeated",
    )
    page.add_argument("--insecure", action="store_true", help="allow other addresses than loopback, without TLS")
    page.add_argument("--cluster", metavar="URL", help="the cluster's directory (default: ENTREPOT_CLUSTER)")
    page.add_argument(
        "--events",
        type=Path,
        metavar="FOLDER",
        help="where failover policies write their event logs (default: ENTREPOT_EVENTS, else the user's state folder)",
    )
    page.add_argument("--open", action="store_true", help="open the page in the default browser")
    page.set_defaults(run=run_ui)

    top = subparsers.add_parser("top", help="show a store in the terminal, live")
    add_watch_options(top, DEFAULT_TOP_INTERVAL)
    top.set_defaults(run=run_top)


def run_ui(arguments: argparse.Namespace) -> int:
    """``entrepot ui``."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InvalidArgument(f"entrepot ui needs {' and '.join(missing)}: pip install 'entrepot[ui]'")
    from entrepot._cli.watch_options import check_interval, parse_listen

    host, port = parse_listen(arguments.listen, DEFAULT_LISTEN)
    if host not in _LOOPBACK and not arguments.insecure:
        raise InvalidArgument(
            f"--listen {arguments.listen} is not on loopback, and there is no TLS: listen on loopback and use an SSH "
            "tunnel or a proxy with TLS, or add --insecure"
        )
    check_interval(arguments.interval)
    from entrepot._daemon.settings import resolve
    from entrepot_policy.state.events import default_folder

    from entrepot_ui.web.serving import ServerSettings, new_token, read_token, serve

    settings = ServerSettings(
        address=resolve(arguments.address).address,
        host=host,
        port=port,
        token=read_token(arguments.token_file) if arguments.token_file is not None else new_token(),
        allowed_hosts=tuple(name.lower() for name in arguments.allow_host),
        cluster=arguments.cluster or os.environ.get("ENTREPOT_CLUSTER") or None,
        interval=arguments.interval,
        events=arguments.events or default_folder(),
    )

    def announce(link: str) -> None:
        print(f"open {link}", flush=True)
        if arguments.open:
            import webbrowser

            if not webbrowser.open(link):
                print("entrepot: no browser could be started: open the link yourself", file=sys.stderr)

    sys.setswitchinterval(SWITCH_INTERVAL)
    serve(settings, announce)
    return 0


def run_top(arguments: argparse.Namespace) -> int:
    """``entrepot top``."""
    if find_spec("textual") is None:
        raise InvalidArgument("entrepot top needs textual: pip install 'entrepot[top]'")
    from entrepot._cli.watch_options import check_interval

    check_interval(arguments.interval)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidArgument("entrepot top needs a terminal: use entrepot ls and entrepot status elsewhere")
    from entrepot._daemon.settings import resolve

    from entrepot_ui.terminal.app import TopApp
    from entrepot_ui.watch.watcher import StoreWatcher

    watcher = StoreWatcher(resolve(arguments.address).address, arguments.interval, list_share=TOP_LIST_SHARE)
    try:
        app = TopApp(watcher, arguments.interval)
        app.run()
    finally:
        watcher.close()
    return app.return_code or 0
