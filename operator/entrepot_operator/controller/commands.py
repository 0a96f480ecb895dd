"""The subcommand ``entrepot operator``."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import threading
import uuid
from typing import TYPE_CHECKING

from entrepot_operator.admission import options

if TYPE_CHECKING:
    from entrepot._cli_common import SubParsers

POD_IP, POD_NAME = "POD_IP", "POD_NAME"
LOOPBACK = "127.0.0.1"


def add_verb(verbs: SubParsers) -> None:
    """Add the subcommand."""
    verb = verbs.add_parser(
        "operator",
        help="keep the Stores of a Kubernetes namespace: their DaemonSets, node labels, held pods",
        epilog="Of several, one acts at a time. It runs until it is ended.",
    )
    verb.add_argument("--namespace", "-n", help="of the Stores (default: that of the pod, or of the kubeconfig)")
    verb.add_argument("--kubeconfig", metavar="FILE", help="default: the pod's service account, or as kubectl finds it")
    verb.add_argument("--context", help="of the kubeconfig (default: its current one)")
    verb.add_argument(
        "--health-address",
        metavar="HOST",
        help=f"where /healthz, /readyz and /metrics are served (default: {POD_IP}, or {LOOPBACK})",
    )
    verb.add_argument("--health-port", type=int, default=8080, metavar="PORT", help="default: 8080; 0: any")
    verb.add_argument("--identity", metavar="NAME", help="of this replica (default: POD_NAME, or one that is random)")
    verb.add_argument(
        "--lease-seconds",
        type=float,
        default=15.0,
        metavar="N",
        help="after which a leader that is not heard of is replaced (default: 15)",
    )
    verb.add_argument(
        "--resync-seconds", type=float, default=600.0, metavar="N", help="between two times that all is applied again"
    )
    verb.add_argument(
        "--hold-seconds",
        type=float,
        default=20.0,
        metavar="N",
        help="for which labels stay after the API was away, so that publishers come back first (default: 20)",
    )
    gates = verb.add_mutually_exclusive_group()
    gates.add_argument(
        "--no-gates",
        action="store_true",
        help="look after no pods that wait for their objects; needs no rights on pods",
    )
    gates.add_argument(
        "--gates-namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="whose pods may wait for their objects; may be repeated (default: all namespaces)",
    )
    verb.add_argument(
        "--installation",
        default="entrepot",
        metavar="NAME",
        help="whose replicas these are; two installations cannot share a namespace (default: entrepot)",
    )
    options.add_options(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """``entrepot operator``."""
    from entrepot_io.cluster.access import find
    from entrepot_io.cluster.api import Api
    from entrepot_io.placement.site_options import site_of

    from entrepot_operator.controller import lines
    from entrepot_operator.controller.running import Operator
    from entrepot_operator.controller.settings import Settings

    access = find(arguments.kubeconfig, arguments.context)
    site = site_of(arguments.socket_folder, arguments.shared_memory)
    settings = Settings(
        namespace=arguments.namespace or access.namespace,
        identity=arguments.identity or os.environ.get(POD_NAME) or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        host=arguments.health_address or os.environ.get(POD_IP) or LOOPBACK,
        port=arguments.health_port,
        lease_seconds=arguments.lease_seconds,
        resync_seconds=arguments.resync_seconds,
        hold_seconds=arguments.hold_seconds,
        site=site,
        gates=None if arguments.no_gates else tuple(arguments.gates_namespace),
        installation=arguments.installation,
    )
    wanted = options.settings(arguments, settings.namespace)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    lines.to_standard_error()
    operator = Operator(settings, lambda patience: Api(access, patience=patience))
    webhook = None
    if wanted is not None:
        from entrepot_operator.admission import serve

        # Before the operator starts: if the port is taken, the process must exit without having taken the lease.
        webhook = serve(operator.known, access, wanted, site)
        operator.add_ready(webhook.unready)
        operator.metrics.add_source(webhook.samples)
    operator.start()
    lines.log.info(
        "operator %s of namespace %s; health at %s, port %d",
        settings.identity,
        settings.namespace,
        settings.host,
        operator.health.port,
        extra=lines.facts(identity=settings.identity, namespace=settings.namespace, port=operator.health.port),
    )
    stop.wait()
    if webhook is not None:
        webhook.close()
    operator.stop()
    return 0
