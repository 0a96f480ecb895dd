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
    from entrepot._cli_common import SubParsers

    from entrepot_io.cluster.places import ClusterPlaces
    from entrepot_io.placement.documents import Document
    from entrepot_io.placement.manifests import Manifest
    from entrepot_io.placement.nodes import Node

_EPILOG = (
    "Locations come from the files of --locations and, with --from-cluster, from the cluster's LocalObjects; without "
    "either, and with --from-store, from the store. The manifests go to standard output, what is said about them to "
    "standard error."
)


def add_verbs(verbs: SubParsers) -> None:
    """Add this module's subcommand."""
    from entrepot._cli_common import add_connection_options

    from entrepot_io.placement.site_options import add_site_options

    inject = verbs.add_parser(
        "inject", help="let the pods of Kubernetes manifests follow the objects they read", epilog=_EPILOG
    )
    add_connection_options(inject)
    inject.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        metavar="FILE",
        help="manifest, YAML or JSON; - for standard input",
    )
    inject.add_argument("-o", "--output", choices=("yaml", "json"), help="default: as the first manifest is written")
    inject.add_argument(
        "--require",
        action="append",
        metavar="ID",
        help="objects that every pod reads (IDs, or names in the store; several with commas); written into the "
        "annotation entrepot.dev/requires, in place of what is there",
    )
    inject.add_argument(
        "--partitioned",
        action="append",
        metavar="ID",
        help="objects that the pods of an Indexed Job or a StatefulSet share out (of a collection: its members)",
    )
    inject.add_argument("--locations", action="append", metavar="FILE", help="{ID: {node: bytes}}, YAML or JSON")
    inject.add_argument(
        "--from-cluster", action="store_true", help="ask the cluster, where 'entrepot publish' runs beside the stores"
    )
    inject.add_argument("--kubeconfig", metavar="FILE", help="of that cluster (default: as kubectl finds it)")
    inject.add_argument("--context", help="of the kubeconfig (default: its current one)")
    inject.add_argument("--store-namespace", metavar="NAME", help="where the stores publish (default: all namespaces)")
    inject.add_argument("--from-store", action="store_true", help="ask the store besides files and cluster")
    inject.add_argument("--node", help="the node of that store (default: ENTREPOT_NODE, or this host's name)")
    inject.add_argument("--only", metavar="KIND/NAME", help="inject this workload alone")
    inject.add_argument("--explain", action="store_true", help="say what was done and why")
    inject.add_argument("--strict", action="store_true", help="a problem is an error, and nothing is written")
    add_site_options(inject)
    inject.set_defaults(run=run_inject)


def run_inject(arguments: argparse.Namespace) -> int:
    """``entrepot inject``."""
    from entrepot_io.placement import account, manifests
    from entrepot_io.placement.documents import inject_document
    from entrepot_io.placement.locating import Merged
    from entrepot_io.placement.site_options import site_of

    read = [manifests.read(*_text(name)) for name in _once_standard_input(arguments.file)]
    site = site_of(arguments.socket_folder, arguments.shared_memory)
    with ExitStack() as open_stores:
        sources = _Sources(arguments, open_stores)
        locations = Merged(*sources.locations)
        nodes = sources.nodes
        required = None if arguments.require is None else sources.objects(arguments.require, members=False)
        partitioned = None if arguments.partitioned is None else sources.objects(arguments.partitioned, members=True)
        said = [
            f"entrepot: the store of node {node} was not heard of in time: what it published does not count"
            for node in sources.expired
        ]
        pods = 0
        for manifest, place in _documents(read):
            part = manifest.parts[place]
            done: Document = inject_document(
                part.content,
                locations,
                required=required,
                partitioned=partitioned,
                nodes=nodes,
                site=site,
                strict=arguments.strict,
                only=arguments.only,
            )
            pods += len(done.pods)
            if done.content != part.content:
                part.changed = done.content
            for where, injection in done.pods.items():
                if arguments.explain:
                    parts = account.by_ordinal(injection, locations, nodes, site)
                    said += account.lines(where, injection, parts)
                else:
                    said += [f"entrepot: {where}: {one.text}" for one in injection.problems]
        if arguments.only is not None and not pods:
            raise InvalidArgument(f"--only names {arguments.only}, but no workload of that kind and name is there")
        if not pods:
            said.append("entrepot: there is no pod in it: nothing was changed")
    text = manifests.write(read, arguments.output)
    if said:
        print("\n".join(said), file=sys.stderr)
    sys.stdout.write(text)
    return 0


class _Sources:
    """Sources of locations, and the store used to resolve names, which is connected to on first use."""

    def __init__(self, arguments: argparse.Namespace, open_stores: ExitStack) -> None:
        from entrepot_io.placement.locating import read_places

        self._arguments = arguments
        self._open_stores = open_stores
        self._connected: Store | None = None
        self.locations: list[Mapping[str, Mapping[str, int]]] = []
        self.nodes: dict[str, Node] | None = None
        self.expired: list[str] = []
        self._cluster = self._read_cluster() if arguments.from_cluster else None
        for name in arguments.locations or []:
            places = read_places(*_text(name))
            self.locations.append(places.objects)
            if places.nodes is not None:
                self.nodes = {**(self.nodes or {}), **places.nodes}
        if self._asks_store():
            self.locations.append(_WhenAsked(self))

    def _read_cluster(self) -> ClusterPlaces:
        from entrepot_io.cluster.access import find
        from entrepot_io.cluster.api import Api
        from entrepot_io.cluster.places import read_cluster

        api = Api(find(self._arguments.kubeconfig, self._arguments.context))
        try:
            places = read_cluster(api, self._arguments.store_namespace)
        finally:
            api.close()
        self.locations.append(places.objects)
        self.nodes = places.nodes
        self.expired = places.expired
        return places

    def store(self) -> Store:
        from entrepot._cli_common import connect

        if self._connected is None:
            self._connected = self._open_stores.enter_context(connect(self._arguments))
        return self._connected

    def objects(self, texts: list[str], *, members: bool) -> list[ObjectID]:
        """The objects that options name; if ``members`` is true, collections are replaced by their members."""
        found: list[ObjectID] = []
        for text in (part.strip() for given in texts for part in given.split(",") if part.strip()):
            try:
                oid = ObjectID(text)
            except InvalidArgument:
                oid = self._named(text)
            published = self._cluster.members(oid) if members and self._cluster is not None else None
            if published is not None:
                found += published
            elif members and self._asks_store() and self._is_collection(oid):
                found += self.store().get(oid).ids
            else:
                found.append(oid)
        return found

    def _named(self, name: str) -> ObjectID:
        from entrepot._cli_objects import find

        if self._cluster is not None and not self._arguments.from_store:
            return self._cluster.named(name, scope=self._arguments.scope, session=self._arguments.session)
        return find(self.store(), name)

    def _asks_store(self) -> bool:
        told = self._arguments.locations or self._arguments.from_cluster
        return self._connected is not None or self._arguments.from_store or not told

    def _is_collection(self, oid: ObjectID) -> bool:
        return self.store().exists(oid) and self.store().info(oid).collection is not None


class _WhenAsked(Mapping[str, Mapping[str, int]]):
    """The store's locations, connected to lazily: a manifest without objects needs no store."""

    def __init__(self, sources: _Sources) -> None:
        self._sources = sources
        self._found: Mapping[str, Mapping[str, int]] | None = None

    def _mapping(self) -> Mapping[str, Mapping[str, int]]:
        from entrepot_io.placement.locating import StoreLocations

        if self._found is None:
            self._found = StoreLocations(self._sources.store(), self._sources._arguments.node)
        return self._found

    def __getitem__(self, key: Any) -> Mapping[str, int]:
        return self._mapping()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping())

    def __len__(self) -> int:
        return len(self._mapping())


def _documents(read: list[Manifest]) -> Iterator[tuple[Manifest, int]]:
    for manifest in read:
        for place, part in enumerate(manifest.parts):
            if part.content is None:
                continue
            if not isinstance(part.content, dict):
                raise InvalidArgument(
                    f"{manifest.name}: a Kubernetes document is a mapping, but document {place + 1} is a "
                    f"{type(part.content).__name__}"
                )
            yield manifest, place


def _once_standard_input(names: list[str]) -> list[str]:
    if names.count("-") > 1:
        raise InvalidArgument("standard input can be read once, but -f - is there several times")
    return names


def _text(name: str) -> tuple[str, str]:
    """A file's content, and its name for messages."""
    try:
        if name == "-":
            return sys.stdin.read(), "standard input"
        return Path(name).read_text(encoding="utf-8"), name
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read {name}: {error}") from None
