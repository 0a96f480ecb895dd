"""Subcommand ``entrepot metrics``."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers

DEFAULT_LISTEN = "127.0.0.1:9817"
DEFAULT_INTERVAL = 5.0
_FIRST_ANSWER_SECONDS = 5.0


def add_subcommands(subparsers: SubParsers) -> None:
    """Add this module's subcommand."""
    from entrepot._cli.watch_options import add_watch_options

    parser = subparsers.add_parser("metrics", help="serve a store's metrics to Prometheus")
    asked = "how often the store is asked, however often Prometheus asks"
    add_watch_options(parser, DEFAULT_INTERVAL, asked)
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"where to serve /metrics (default {DEFAULT_LISTEN})",
    )
    parser.add_argument("--dashboard", action="store_true", help="print a dashboard for Grafana, as JSON, and exit")
    parser.add_argument("--alerts", action="store_true", help="print rules of alerts for Prometheus, and exit")
    parser.set_defaults(run=run_metrics)


def run_metrics(arguments: argparse.Namespace) -> int:
    """``entrepot metrics``."""
    if arguments.dashboard or arguments.alerts:
        name = "grafana.json" if arguments.dashboard else "alerts.yml"
        sys.stdout.write(files("entrepot_metrics").joinpath(name).read_text(encoding="utf-8"))
        return 0
    if find_spec("prometheus_client") is None:
        raise InvalidArgument("entrepot metrics needs prometheus_client: pip install 'entrepot[metrics]'")
    from entrepot._cli.watch_options import check_interval, parse_listen

    host, port = parse_listen(arguments.listen, DEFAULT_LISTEN)
    check_interval(arguments.interval)
    from entrepot._daemon.settings import resolve
    from prometheus_client import CollectorRegistry

    from entrepot_metrics.serving import MetricsServer
    from entrepot_metrics.status_poller import StatusPoller
    from entrepot_metrics.store_collector import StoreCollector

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    poller = StatusPoller(resolve(arguments.address).address, arguments.interval)
    poller.wait_tried(_FIRST_ANSWER_SECONDS)  # or the first scrape would report a store that is up as down
    registry = CollectorRegistry()
    registry.register(StoreCollector(poller.status))
    try:
        server = MetricsServer(host, port, registry)
    except OSError as error:
        raise InvalidArgument(f"--listen {arguments.listen}: cannot listen there: {error}") from error
    threading.Thread(target=server.serve_forever, name="entrepot-metrics", daemon=True).start()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    print(f"serving http://{host}:{server.server_address[1]}/metrics", flush=True)
    ended.wait()
    server.shutdown()
    server.server_close()
    poller.close()
    return 0
