"""The subcommand ``entrepot inject``: manifests whose pods are scheduled near their data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot._cli.common import SubParsers

    from entrepot_operator.kubernetes.locations import ClusterLocations
    from entrepot_operator.placement.formats.manifests import Manifest
    from entrepot_operator.placement.injection.documents import Document
    from entrepot_operator.placement.nodes import Node

_EPILOG = (
    "Locations come from the files of --locations and, with --from-cluster, from the cluster's LocalObjects; without "
    "either, or with --from-store, from the store. Manifests go to standard output, messages to standard error."
)


def add_subcommands(subcommands: SubParsers) -> None:
    """Add this module's subcommand."""
    from entrepot._cli.common import add_connection_options

    from entrepot_operator.placement.cli_options import add_cluster_config_options

    parser = subcommands.add_parser(
        "inject", help="schedule the pods of Kubernetes manifests near the objects they read", epilog=_EPILOG
    )
    add_connection_options(parser)
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        metavar="FILE",
        help="manifest, YAML or JSON; - reads standard input",
    )
    parser.add_argument("-o", "--output", choices=("yaml", "json"), help="default: the first manifest's format")
    parser.add_argument(
        "--require",
        action="append",
        metavar="ID",
        help="objects that every pod reads (IDs, or names in the store; comma-separated); replaces the annotation "
        "entrepot.dev/requires",
    )
    parser.add_argument(
        "--partitioned",
        action="append",
        metavar="ID",
        help="objects divided among the pods of an Indexed Job or a StatefulSet (of a collection: its members)",
    )
    parser.add_argument("--locations", action="append", metavar="FILE", help="{ID: {node: bytes}}, YAML or JSON")
    parser.add_argument(
        "--from-cluster", action="store_true", help="query the cluster; requires 'entrepot publish' beside the stores"
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig of that cluster (default: kubectl's)")
    parser.add_argument("--context", help="context in the kubeconfig (default: its current one)")
    parser.add_argument("--store-namespace", metavar="NAME", help="namespace the stores publish to (default: all)")
    parser.add_argument("--from-store", action="store_true", help="query the store as well as files and cluster")
    parser.add_argument("--node", help="node of that store (default: ENTREPOT_NODE, or the host name)")
    parser.add_argument("--only", metavar="KIND/NAME", help="inject only this workload")
    parser.add_argument("--explain", action="store_true", help="print what was done and why")
    parser.add_argument("--strict", action="store_true", help="treat problems as errors, and write nothing")
    add_cluster_config_options(parser)
    parser.set_defaults(run=run_inject)


def run_inject(arguments: argparse.Namespace) -> int:
    """``entrepot inject``."""
    from entrepot_operator.placement.cli_options import make_cluster_config
    from entrepot_operator.placement.formats import manifests
    from entrepot_operator.placement.injection import report
    from entrepot_operator.placement.injection.documents import inject_document
    from entrepot_operator.placement.locations import MergedLocations

    loaded_manifests = [manifests.parse(*_read_text(name)) for name in _check_standard_input_once(arguments.file)]
    cluster_config = make_cluster_config(arguments.socket_folder, arguments.shared_memory)
    with ExitStack() as open_stores:
        sources = _Sources(arguments, open_stores)
        locations = MergedLocations(*sources.locations)
        nodes = sources.nodes
        required = None if arguments.require is None else sources.resolve_objects(arguments.require, members=False)
        partitioned = (
            None if arguments.partitioned is None else sources.resolve_objects(arguments.partitioned, members=True)
        )
        messages = [
            f"entrepot: the lease of the store on node {node} has expired: its published objects are ignored"
            for node in sources.expired
        ]
        pod_count = 0
        for manifest, index in _iter_documents(loaded_manifests):
            part = manifest.parts[index]
            injected: Document = inject_document(
                part.content,
                locations,
                required=required,
                partitioned=partitioned,
                nodes=nodes,
                site=cluster_config,
                strict=arguments.strict,
                only=arguments.only,
            )
            pod_count += len(injected.pods)
            if injected.content != part.content:
                part.changed = injected.content
            for where, injection in injected.pods.items():
                if arguments.explain:
                    injections_by_ordinal = report.by_ordinal(injection, locations, nodes, cluster_config)
                    messages += report.report_lines(where, injection, injections_by_ordinal)
                else:
                    messages += [f"entrepot: {where}: {problem.text}" for problem in injection.problems]
        if arguments.only is not None and not pod_count:
            raise InvalidArgument(f"--only {arguments.only}: no workload of that kind and name found")
        if not pod_count:
            messages.append("entrepot: no pods found: nothing was changed")
    text = manifests.serialize(loaded_manifests, arguments.output)
    if messages:
        print("\n".join(messages), file=sys.stderr)
    sys.stdout.write(text)
    return 0


class _Sources:
    """Sources of locations, and the store used to resolve names, which is connected to on first use."""

    def __init__(self, arguments: argparse.Namespace, open_stores: ExitStack) -> None:
        from entrepot_operator.placement.locations import parse_locations

        self._arguments = arguments
        self._open_stores = open_stores
        self._connected: Store | None = None
        self.locations: list[Mapping[str, Mapping[str, int]]] = []
        self.nodes: dict[str, Node] | None = None
        self.expired: list[str] = []
        self._cluster = self._read_cluster() if arguments.from_cluster else None
        for name in arguments.locations or []:
            locations = parse_locations(*_read_text(name))
            self.locations.append(locations.objects)
            if locations.nodes is not None:
                self.nodes = {**(self.nodes or {}), **locations.nodes}
        if self._uses_store():
            self.locations.append(_LazyStoreLocations(self))

    def _read_cluster(self) -> ClusterLocations:
        from entrepot_operator.kubernetes.api import Api
        from entrepot_operator.kubernetes.credentials import find
        from entrepot_operator.kubernetes.locations import read_cluster_locations

        api = Api(find(self._arguments.kubeconfig, self._arguments.context))
        try:
            locations = read_cluster_locations(api, self._arguments.store_namespace)
        finally:
            api.close()
        self.locations.append(locations.objects)
        self.nodes = locations.nodes
        self.expired = locations.expired_nodes
        return locations

    def store(self) -> Store:
        from entrepot._cli.common import connect

        if self._connected is None:
            self._connected = self._open_stores.enter_context(connect(self._arguments))
        return self._connected

    def resolve_objects(self, texts: list[str], *, members: bool) -> list[ObjectID]:
        """The objects that options name; if ``members`` is true, collections are replaced by their members."""
        object_ids: list[ObjectID] = []
        for text in (part.strip() for option in texts for part in option.split(",") if part.strip()):
            try:
                oid = ObjectID(text)
            except InvalidArgument:
                oid = self._resolve_name(text)
            published_members = self._cluster.members(oid) if members and self._cluster is not None else None
            if published_members is not None:
                object_ids += published_members
            elif members and self._uses_store() and self._is_collection(oid):
                object_ids += self.store().get(oid).ids
            else:
                object_ids.append(oid)
        return object_ids

    def _resolve_name(self, name: str) -> ObjectID:
        from entrepot._cli.objects import resolve_object

        if self._cluster is not None and not self._arguments.from_store:
            return self._cluster.find_by_name(name, scope=self._arguments.scope, session=self._arguments.session)
        return resolve_object(self.store(), name)

    def _uses_store(self) -> bool:
        has_other_sources = self._arguments.locations or self._arguments.from_cluster
        return self._connected is not None or self._arguments.from_store or not has_other_sources

    def _is_collection(self, oid: ObjectID) -> bool:
        return self.store().exists(oid) and self.store().info(oid).collection is not None


class _LazyStoreLocations(Mapping[str, Mapping[str, int]]):
    """The store's locations, connected to lazily: a manifest without objects needs no store."""

    def __init__(self, sources: _Sources) -> None:
        self._sources = sources
        self._locations: Mapping[str, Mapping[str, int]] | None = None

    def _load(self) -> Mapping[str, Mapping[str, int]]:
        from entrepot_operator.placement.locations import StoreLocations

        if self._locations is None:
            self._locations = StoreLocations(self._sources.store(), self._sources._arguments.node)
        return self._locations

    def __getitem__(self, key: Any) -> Mapping[str, int]:
        return self._load()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())


def _iter_documents(loaded_manifests: list[Manifest]) -> Iterator[tuple[Manifest, int]]:
    for manifest in loaded_manifests:
        for index, part in enumerate(manifest.parts):
            if part.content is None:
                continue
            if not isinstance(part.content, dict):
                raise InvalidArgument(
                    f"{manifest.name}: a Kubernetes document must be a mapping, but document {index + 1} is a "
                    f"{type(part.content).__name__}"
                )
            yield manifest, index


def _check_standard_input_once(names: list[str]) -> list[str]:
    if names.count("-") > 1:
        raise InvalidArgument("standard input can be read only once, but -f - was given several times")
    return names


def _read_text(name: str) -> tuple[str, str]:
    """A file's content, and its name for messages."""
    try:
        if name == "-":
            return sys.stdin.read(), "standard input"
        return Path(name).read_text(encoding="utf-8"), name
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read {name}: {error}") from None
