"""Which task made which objects of a session from which others, and which of them share memory, as a graph to draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from entrepot.errors import CorruptData, VersionMismatch
from entrepot.ids import ObjectID
from entrepot_policy.state import lineage

from entrepot_ui.watch.details import Details
from entrepot_ui.watch.rows import ObjectRow

if TYPE_CHECKING:
    from entrepot import Store

MAX_RECORDS = 150  # of a session that are drawn, the newest
_INPUT, _SHARED = "input", "shared"


@dataclass(slots=True)
class Node:
    """An object in the graph.

    Attributes:
        id: of the object.
        label: its key, its name or its ID.
        task: what made it; empty: not recorded.
        seconds: that the task took until then; None: not recorded.
        type: of the value.
        nbytes, own_bytes, shared_bytes: of the value; None: not known.
        state: where it lives; ``"gone"``: not in this store any more.
        created: seconds since 1970; 0: not known.
        level: column in which it is drawn, right of everything that it was made from.
    """

    id: str
    label: str
    task: str = ""
    seconds: float | None = None
    type: str = ""
    nbytes: int | None = None
    own_bytes: int | None = None
    shared_bytes: int | None = None
    state: str = "gone"
    created: float = 0.0
    level: int = 0


def places_with_lineage(rows: Iterable[ObjectRow], details: Details) -> list[str]:
    """The sessions of which there is something to draw, those with the newest objects first."""
    sharing = {each["id"] for each in details.objects if each["parents"]}
    newest: dict[str, float] = {}
    for row in rows:
        if row.names.startswith(lineage.PREFIX) or row.id in sharing:
            newest[row.place] = max(newest.get(row.place, 0.0), row.created)
    return sorted(newest, key=lambda place: (-newest[place], place))


def graph_of(store: Store, rows: Sequence[ObjectRow], details: Details, place: str) -> dict[str, Any]:
    """The graph of one session.

    Args:
        store: any session of the scope.
        rows: all objects.
        details: what the largest of them share.
        place: the session, as ``ObjectRow.place`` names it.

    Returns:
        ``nodes``, by level and time; ``edges``, each with ``source``, ``target`` and ``kind``: ``"input"`` (the task
        that made the target had read the source) or ``"shared"`` (the target holds memory of the source);
        ``unreadable``, the number of records that cannot be read; ``truncated``.

    Raises:
        StoreUnavailable, Timeout: the store does not answer.
    """
    here = [row for row in rows if row.place == place]
    records = sorted((row for row in here if _output_of(row)), key=lambda row: row.created)
    nodes: dict[str, Node] = {}
    edges: list[dict[str, str]] = []
    unreadable = 0
    for row in records[-MAX_RECORDS:]:
        ref = lineage.ObjectRef(row.session, ObjectID(_output_of(row)))
        try:
            record = lineage.read(store, ref)
        except (CorruptData, VersionMismatch):
            unreadable += 1
            continue
        if record is None:
            continue  # gone in the meantime
        node = nodes.setdefault(str(ref.id), Node(str(ref.id), ""))
        node.label = record.output.key
        node.task = "/".join(part for part in (record.task.pipeline, record.task.name) if part)
        node.seconds, node.type, node.nbytes = record.seconds, record.type, record.nbytes
        node.created = record.created
        for source in record.inputs:
            nodes.setdefault(str(source.id), Node(str(source.id), source.key))
            edges.append({"source": str(source.id), "target": node.id, "kind": _INPUT})
    by_id = {row.id: row for row in rows}
    for each in details.objects:
        for parent in each["parents"]:
            if (each["id"] in nodes or each["session"] == place) and parent in by_id:
                for oid in (each["id"], parent):
                    nodes.setdefault(oid, Node(oid, ""))
                edges.append({"source": parent, "target": each["id"], "kind": _SHARED})
    sizes = {each["id"]: each for each in details.objects}
    for node in nodes.values():
        _complete(node, by_id.get(node.id), sizes.get(node.id))
    _set_levels(nodes, edges)
    ordered = sorted(nodes.values(), key=lambda node: (node.level, node.created, node.id))
    return {
        "nodes": [asdict(node) for node in ordered],
        "edges": edges,
        "unreadable": unreadable,
        "truncated": len(records) > MAX_RECORDS,
    }


def _output_of(row: ObjectRow) -> str:
    """The ID of the object that a record describes; empty: this is no record, or one of its further pages."""
    name = row.names.partition(", ")[0]
    oid = name.removeprefix(lineage.PREFIX)
    return oid if oid != name and "/" not in oid else ""


def _complete(node: Node, row: ObjectRow | None, sizes: dict[str, Any] | None) -> None:
    if row is not None:
        node.label = node.label or row.names
        node.state, node.type, node.nbytes = row.state, row.type or node.type, row.nbytes
        node.created = node.created or row.created
    if sizes is not None:
        node.own_bytes, node.shared_bytes = sizes["own_bytes"], sizes["shared_bytes"]
    node.label = node.label or node.id


def _set_levels(nodes: dict[str, Node], edges: list[dict[str, str]]) -> None:
    """Put each node right of its sources that are older: a task that runs again may have read what it then made."""
    sources: dict[str, list[str]] = {}
    for edge in edges:
        sources.setdefault(edge["target"], []).append(edge["source"])
    order = sorted(nodes.values(), key=lambda node: (node.created, node.id))
    place = {node.id: number for number, node in enumerate(order)}
    for node in order:
        earlier = [nodes[each] for each in sources.get(node.id, ()) if place[each] < place[node.id]]
        node.level = max((each.level + 1 for each in earlier), default=0)
