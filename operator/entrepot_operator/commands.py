"""The subcommands ``entrepot publish``, ``entrepot operator``, ``entrepot crds`` and ``entrepot manifests``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot._cli_common import SubParsers

    from entrepot_operator.publishing.bounds import Bounds
    from entrepot_operator.publishing.observing import Origin
    from entrepot_operator.publishing.plan import Published

ONCE_SECONDS = 300.0


def add_verbs(verbs: SubParsers) -> None:
    """Add this module's subcommands."""
    publish = verbs.add_parser(
        "publish",
        help="tell a Kubernetes cluster what the store of this node holds",
        epilog="Named objects, objects of durable sessions and the members of collections among them become "
        "LocalObjects, collections GlobalObjects too. It runs until it is ended; what it published then expires.",
    )
    publish.add_argument("--address", help="unix:///path of the store (default: ENTREPOT_ADDRESS)")
    publish.add_argument("--node", help="the node's name in the cluster (default: ENTREPOT_NODE)")
    publish.add_argument(
        "--store", default="default", metavar="NAME", help="the Store that it belongs to (default: default)"
    )
    publish.add_argument("--namespace", "-n", help="where to publish (default: that of the pod, or of the kubeconfig)")
    publish.add_argument(
        "--kubeconfig", metavar="FILE", help="default: the pod's service account, or as kubectl finds it"
    )
    publish.add_argument("--context", help="of the kubeconfig (default: its current one)")
    publish.add_argument("--max-objects", type=int, metavar="N", help="of this node; the largest win (default: 1000)")
    publish.add_argument("--min-bytes", type=int, metavar="N", help="smaller objects are not published (default: 0)")
    publish.add_argument("--writes-per-second", type=float, metavar="N", help="on average (default: 20)")
    publish.add_argument(
        "--lease-seconds", type=int, metavar="N", help="how long objects outlive the store (default: 60)"
    )
    publish.add_argument("--interval", type=float, metavar="SECONDS", help="between looks at the store (default: 2)")
    publish.add_argument("--once", action="store_true", help="publish what is there now, and end")
    publish.add_argument(
        "--dry-run", action="store_true", help="print what would be published as JSON, and ask no cluster"
    )
    publish.set_defaults(run=run_publish)
    from entrepot_operator.controller import commands as controller

    controller.add_verb(verbs)
    crds = verbs.add_parser("crds", help="print the CRDs, for kubectl apply --server-side -f -")
    crds.set_defaults(run=run_crds)
    manifests = verbs.add_parser(
        "manifests",
        help="print all that an installation needs: CRDs, operator, webhook, for kubectl apply --server-side -f -",
    )
    manifests.add_argument("--namespace", "-n", help="of operator and stores (default: entrepot-system)")
    manifests.add_argument("--image", help="with the operator (default: entrepot:VERSION)")
    manifests.add_argument("--only", metavar="PART", help="such as webhook, operator, publisher, reader or crds")
    manifests.set_defaults(run=run_manifests)


def run_crds(_: argparse.Namespace) -> int:
    """``entrepot crds``."""
    from entrepot_operator import crds

    sys.stdout.write(crds.text())
    return 0


def run_manifests(arguments: argparse.Namespace) -> int:
    """``entrepot manifests``."""
    from entrepot_operator import installing

    text = installing.text(
        namespace=arguments.namespace or installing.NAMESPACE,
        image=arguments.image or installing.IMAGE,
        only=arguments.only,
    )
    sys.stdout.write(text)
    return 0


def run_publish(arguments: argparse.Namespace) -> int:
    """``entrepot publish``."""
    from entrepot_operator.publishing.observing import Origin

    origin = Origin(_node(arguments), _store_name(arguments.store))
    bounds = _bounds(arguments)
    if arguments.dry_run:
        return _print(arguments, origin, bounds)

    from entrepot_io.cluster.access import find
    from entrepot_io.cluster.api import Api

    from entrepot_operator.publishing.publisher import Publisher

    access = find(arguments.kubeconfig, arguments.context)
    namespace = arguments.namespace or access.namespace
    publisher = Publisher(Api(access), lambda: _connected(arguments), origin, namespace, bounds)
    if arguments.once:
        try:
            report = publisher.publish_all(ONCE_SECONDS)
        finally:
            publisher.close()
        print(f"{report.wanted} resources in {namespace}, {report.refused} refused, {report.left_out} left out")
        return 1 if report.refused else 0
    publisher.run(_until_ended())
    return 0


def _print(arguments: argparse.Namespace, origin: Origin, bounds: Bounds) -> int:
    from entrepot_io.cluster.objects import API_VERSION

    from entrepot_operator.publishing.observing import Observer

    with _connected(arguments) as store:
        wanted = Observer(origin, bounds).look(store)
    everything: list[Published] = [*wanted.locals.values(), *wanted.globals.values()]
    items: list[dict[str, Any]] = [
        {
            "apiVersion": API_VERSION,
            "kind": type(one).__name__,
            "metadata": {"name": one.name},
            "spec": one.spec(),
        }
        for one in everything
    ]
    json.dump({"apiVersion": "v1", "kind": "List", "items": items}, sys.stdout, indent=2)
    sys.stdout.write("\n")
    for note in wanted.notes:
        print(f"entrepot: {note}", file=sys.stderr)
    if wanted.left_out:
        print(f"entrepot: {wanted.left_out} objects exceed the bounds", file=sys.stderr)
    return 0


def _connected(arguments: argparse.Namespace) -> Store:
    from entrepot._cli_common import connect

    return connect(arguments)


def _node(arguments: argparse.Namespace) -> str:
    from entrepot_io.placement.names import NODE_VARIABLE

    node = arguments.node or os.environ.get(NODE_VARIABLE)
    if not node:
        raise InvalidArgument(f"which node is this? Give --node, or {NODE_VARIABLE} (in a pod: fieldRef spec.nodeName)")
    return str(node)


def _store_name(name: str) -> str:
    import re

    if len(name) > 63 or re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) is None:
        raise InvalidArgument(f"the name of a Store has lower-case letters, digits and '-', at most 63, not {name!r}")
    return name


def _bounds(arguments: argparse.Namespace) -> Bounds:
    from entrepot_operator.publishing.bounds import Bounds

    given = {
        "max_objects": arguments.max_objects,
        "min_bytes": arguments.min_bytes,
        "writes_per_second": arguments.writes_per_second,
        "lease_seconds": arguments.lease_seconds,
        "scan_seconds": arguments.interval,
    }
    return Bounds(**{name: value for name, value in given.items() if value is not None})


def _until_ended() -> Any:
    from threading import Event

    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
