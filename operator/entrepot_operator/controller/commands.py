"""The subcommand ``entrepot operator``."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import threading
import uuid
from importlib.util import find_spec
from typing import TYPE_CHECKING

from entrepot.errors import InvalidArgument

from entrepot_operator.webhook import cli_options

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers

POD_IP, POD_NAME = "POD_IP", "POD_NAME"
LOOPBACK = "127.0.0.1"


def add_subcommand(subparsers: SubParsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "operator",
        help="manage the Stores of a Kubernetes namespace: their DaemonSets, node labels, held pods",
        epilog="Only one of several replicas is active at a time. Runs until terminated.",
    )
    parser.add_argument("--namespace", "-n", help="namespace of the Stores (default: the pod's or the kubeconfig's)")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="default: the pod's service account, or kubectl's kubeconfig"
    )
    parser.add_argument("--context", help="context in the kubeconfig (default: its current one)")
    parser.add_argument(
        "--health-address",
        metavar="HOST",
        help=f"address for /healthz, /readyz and /metrics (default: {POD_IP}, or {LOOPBACK})",
    )
    parser.add_argument("--health-port", type=int, default=8080, metavar="PORT", help="default: 8080; 0: any free port")
    parser.add_argument("--identity", metavar="NAME", help="name of this replica (default: POD_NAME, or a random one)")
    parser.add_argument(
        "--lease-seconds",
        type=float,
        default=15.0,
        metavar="N",
        help="seconds after which an unresponsive leader is replaced (default: 15)",
    )
    parser.add_argument(
        "--resync-seconds", type=float, default=600.0, metavar="N", help="between full resyncs (default: 600)"
    )
    parser.add_argument(
        "--hold-seconds",
        type=float,
        default=20.0,
        metavar="N",
        help="seconds to keep node labels after an API outage, until publishers have reconnected (default: 20)",
    )
    gates = parser.add_mutually_exclusive_group()
    gates.add_argument(
        "--no-gates",
        action="store_true",
        help="do not manage pods that wait for their objects; requires no rights on pods",
    )
    gates.add_argument(
        "--gates-namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="namespace whose pods may wait for their objects; repeatable (default: all namespaces)",
    )
    parser.add_argument(
        "--installation",
        default="entrepot",
        metavar="NAME",
        help="name of this installation; two installations cannot share a namespace (default: entrepot)",
    )
    cli_options.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """``entrepot operator``."""
    if find_spec("prometheus_client") is None:
        raise InvalidArgument("the operator needs prometheus_client: pip install 'entrepot[operator]'")
    from entrepot_operator.controller.main import Operator
    from entrepot_operator.controller.monitoring import json_logging
    from entrepot_operator.controller.settings import Settings
    from entrepot_operator.kubernetes.api import Api
    from entrepot_operator.kubernetes.credentials import find
    from entrepot_operator.placement.cli_options import make_cluster_config

    credentials = find(arguments.kubeconfig, arguments.context)
    cluster_config = make_cluster_config(arguments.socket_folder, arguments.shared_memory)
    settings = Settings(
        namespace=arguments.namespace or credentials.namespace,
        identity=arguments.identity or os.environ.get(POD_NAME) or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        host=arguments.health_address or os.environ.get(POD_IP) or LOOPBACK,
        port=arguments.health_port,
        lease_seconds=arguments.lease_seconds,
        resync_seconds=arguments.resync_seconds,
        hold_seconds=arguments.hold_seconds,
        cluster_config=cluster_config,
        gates=None if arguments.no_gates else tuple(arguments.gates_namespace),
        installation=arguments.installation,
    )
    webhook_settings = cli_options.settings_from_arguments(arguments, settings.namespace)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    json_logging.log_to_stderr()
    operator = Operator(settings, lambda patience: Api(credentials, patience=patience))
    webhook = None
    if webhook_settings is not None:
        from entrepot_operator.webhook import serve

        # Before the operator starts: if the port is taken, the process must exit without having taken the lease.
        webhook = serve(operator.index_reader, credentials, webhook_settings, cluster_config)
        operator.add_readiness_check(webhook.readiness_problems)
        operator.metrics.registry.register(webhook)
    operator.start()
    json_logging.log.info(
        "operator %s of namespace %s; health at %s, port %d",
        settings.identity,
        settings.namespace,
        settings.host,
        operator.health.port,
        extra=json_logging.log_fields(
            identity=settings.identity, namespace=settings.namespace, port=operator.health.port
        ),
    )
    stop.wait()
    if webhook is not None:
        webhook.close()
    operator.stop()
    return 0
