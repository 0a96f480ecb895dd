"""The subcommands ``entrepot publish``, ``entrepot operator``, ``entrepot crds`` and ``entrepot manifests``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument
from entrepot.lazy_imports import deprecated_names

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot._cli.common import SubParsers

    from entrepot_operator.publisher.diff import PublishedObject
    from entrepot_operator.publisher.limits import Limits
    from entrepot_operator.publisher.snapshot import PublisherIdentity

ONCE_SECONDS = 300.0

__getattr__ = deprecated_names(__name__, {"add_verbs": "add_subcommands"})


def add_subcommands(subparsers: SubParsers) -> None:
    """Add this module's subcommands."""
    publish = subparsers.add_parser(
        "publish",
        help="publish what this node's store holds to a Kubernetes cluster",
        epilog="Named objects, objects of durable sessions and the members of collections among them become "
        "LocalObjects; collections also become GlobalObjects. Runs until terminated; what it published then expires.",
    )
    publish.add_argument("--address", help="address of the store, unix:///path (default: ENTREPOT_ADDRESS)")
    publish.add_argument("--node", help="name of this node in the cluster (default: ENTREPOT_NODE)")
    publish.add_argument(
        "--store", default="default", metavar="NAME", help="name of the Store resource it belongs to (default: default)"
    )
    publish.add_argument("--namespace", "-n", help="namespace to publish to (default: the pod's or the kubeconfig's)")
    publish.add_argument(
        "--kubeconfig", metavar="FILE", help="default: the pod's service account, or kubectl's kubeconfig"
    )
    publish.add_argument("--context", help="context in the kubeconfig (default: its current one)")
    publish.add_argument(
        "--max-objects", type=int, metavar="N", help="publish at most the N largest objects (default: 1000)"
    )
    publish.add_argument("--min-bytes", type=int, metavar="N", help="do not publish smaller objects (default: 0)")
    publish.add_argument("--writes-per-second", type=float, metavar="N", help="average rate limit (default: 20)")
    publish.add_argument(
        "--lease-seconds", type=int, metavar="N", help="how long objects stay published without the store (default: 60)"
    )
    publish.add_argument("--interval", type=float, metavar="SECONDS", help="between scans of the store (default: 2)")
    publish.add_argument("--once", action="store_true", help="publish the current objects, then exit")
    publish.add_argument(
        "--dry-run", action="store_true", help="print what would be published as JSON; contact no cluster"
    )
    publish.set_defaults(run=run_publish)
    from entrepot_operator.controller import commands as controller

    controller.add_subcommand(subparsers)
    crds = subparsers.add_parser("crds", help="print the CRDs for kubectl apply --server-side -f -")
    crds.set_defaults(run=run_crds)
    manifests = subparsers.add_parser(
        "manifests",
        help="print all manifests of an installation (CRDs, operator, webhook) for kubectl apply --server-side -f -",
    )
    manifests.add_argument("--namespace", "-n", help="namespace of operator and stores (default: entrepot-system)")
    manifests.add_argument("--image", help="image of the operator (default: entrepot:VERSION)")
    manifests.add_argument(
        "--only", metavar="PART", help="print only this part: webhook, operator, publisher, reader, crds, ..."
    )
    manifests.set_defaults(run=run_manifests)


def run_crds(_: argparse.Namespace) -> int:
    """``entrepot crds``."""
    from entrepot_operator import crds

    sys.stdout.write(crds.text())
    return 0


def run_manifests(arguments: argparse.Namespace) -> int:
    """``entrepot manifests``."""
    from entrepot_operator import install_manifests

    text = install_manifests.text(
        namespace=arguments.namespace or install_manifests.NAMESPACE,
        image=arguments.image or install_manifests.IMAGE,
        only=arguments.only,
    )
    sys.stdout.write(text)
    return 0


def run_publish(arguments: argparse.Namespace) -> int:
    """``entrepot publish``."""
    from entrepot_operator.publisher.snapshot import PublisherIdentity

    identity = PublisherIdentity(_node_name(arguments), _store_name(arguments.store))
    limits = _limits(arguments)
    if arguments.dry_run:
        return _print_dry_run(arguments, identity, limits)

    from entrepot_operator.kubernetes.api import Api
    from entrepot_operator.kubernetes.credentials import find
    from entrepot_operator.publisher.main import Publisher

    credentials = find(arguments.kubeconfig, arguments.context)
    namespace = arguments.namespace or credentials.namespace
    publisher = Publisher(Api(credentials), lambda: _connect_store(arguments), identity, namespace, limits)
    if arguments.once:
        try:
            report = publisher.publish_all(ONCE_SECONDS)
        finally:
            publisher.close()
        print(f"{report.desired} resources in {namespace}, {report.refused} refused, {report.left_out} left out")
        return 1 if report.refused else 0
    publisher.run(_stop_event())
    return 0


def _print_dry_run(arguments: argparse.Namespace, identity: PublisherIdentity, limits: Limits) -> int:
    from entrepot_operator.kubernetes.objects import API_VERSION
    from entrepot_operator.publisher.snapshot import StoreScanner

    with _connect_store(arguments) as store:
        desired = StoreScanner(identity, limits).scan(store)
    resources: list[PublishedObject] = [*desired.locals.values(), *desired.globals.values()]
    items: list[dict[str, Any]] = [
        {
            "apiVersion": API_VERSION,
            "kind": type(resource).__name__,
            "metadata": {"name": resource.name},
            "spec": resource.spec(),
        }
        for resource in resources
    ]
    json.dump({"apiVersion": "v1", "kind": "List", "items": items}, sys.stdout, indent=2)
    sys.stdout.write("\n")
    for note in desired.notes:
        print(f"entrepot: {note}", file=sys.stderr)
    if desired.left_out:
        print(f"entrepot: {desired.left_out} objects exceed the limits", file=sys.stderr)
    return 0


def _connect_store(arguments: argparse.Namespace) -> Store:
    from entrepot._cli.common import connect

    return connect(arguments)


def _node_name(arguments: argparse.Namespace) -> str:
    from entrepot_operator.placement.names import NODE_VARIABLE

    node = arguments.node or os.environ.get(NODE_VARIABLE)
    if not node:
        raise InvalidArgument(f"unknown node: pass --node, or set {NODE_VARIABLE} (in a pod: fieldRef spec.nodeName)")
    return str(node)


def _store_name(name: str) -> str:
    import re

    if len(name) > 63 or re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) is None:
        raise InvalidArgument(f"a Store's name must be at most 63 lower-case letters, digits and '-', not {name!r}")
    return name


def _limits(arguments: argparse.Namespace) -> Limits:
    from entrepot_operator.publisher.limits import Limits

    overrides = {
        "max_objects": arguments.max_objects,
        "min_bytes": arguments.min_bytes,
        "writes_per_second": arguments.writes_per_second,
        "lease_seconds": arguments.lease_seconds,
        "scan_seconds": arguments.interval,
    }
    return Limits(**{name: value for name, value in overrides.items() if value is not None})


def _stop_event() -> Any:
    from threading import Event

    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
