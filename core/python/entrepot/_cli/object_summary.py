"""What people want to know of an object first: type, size, age, schema, and what shares memory with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot._cli.common import age, human_bytes, printable
from entrepot.errors import EntrepotError
from entrepot.first_rows import first_rows
from entrepot.phrases import count_of
from entrepot.safe_reads import reason_not_to_show

if TYPE_CHECKING:
    from entrepot._client.info import ObjectInfo
    from entrepot._store.store import Store

MAX_COLUMNS = 20
MAX_PARENTS = 5
_STATES = {"sealed": "in memory", "spilled": "on disk"}


def summary_of(store: Store, info: ObjectInfo) -> list[tuple[str, str]]:
    """Return labels and sentences.

    Args:
        store: a connection that unpickles nothing. The schema is read from the value, if that is in memory.
        info: of the object.
    """
    where = f"{_STATES.get(info.state, info.state)}, sealed {age(info.created)} ago"
    lines = [("value", f"{printable(type_label(info))}, {human_bytes(payload_bytes(info))}, {where}")]
    if schema := _schema(store, info):
        lines.append(("schema", schema))
    lines.append(("sharing", _sharing(store, info)))
    if info.pins:
        holders = ", ".join(f"{printable(holder['label'])} ({holder['pid']})" for holder in info.pinned_by)
        lines.append(("read by", f"{count_of(info.pins, 'process')}: {holders}"))
    return lines


def payload_bytes(info: ObjectInfo) -> int:
    """The size of a value; of a collection, that of its members."""
    return info.nbytes if info.collection is None else int(info.collection["nbytes"])


def type_label(info: ObjectInfo) -> str:
    """What an object is: its type, with the place of a member in its collection."""
    if info.collection is not None:
        return f"collection of {info.collection['members']} {info.collection['type']}".rstrip()
    if info.member_of is not None:
        return f"{info.type}, {info.member_of['name']}[{info.member_of['index']}]"
    return info.type


def _schema(store: Store, info: ObjectInfo) -> str:
    """Columns and number of rows, or shape; empty for values that have neither, or that are not read here."""
    if info.state != "sealed" or info.collection is not None or reason_not_to_show(info.type, info.nbytes):
        return ""
    try:
        value = store.get(info.id, remote=False, timeout=0)
    except EntrepotError:  # deleted or evicted in the meantime: there is no schema to show
        return ""
    return _schema_of(value)


def _schema_of(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape") and not hasattr(value, "to_frame"):
        return f"{value.dtype}, shape {value.shape}"
    shown = first_rows(value, 0, str, max_columns=MAX_COLUMNS, index=False)
    if shown is None:
        return ""
    if not shown.is_table:
        return "" if isinstance(value, (dict, list, tuple)) else f"{shown.columns[0][1]}, {count_of(shown.rows, 'row')}"
    columns = ", ".join(f"{printable(name)} {printable(kind)}" for name, kind in shown.columns)
    more = f" and {count_of(shown.width - len(shown.columns), 'more column')}" if shown.width > MAX_COLUMNS else ""
    return f"{columns}{more}; {count_of(shown.rows, 'row')}"


def _sharing(store: Store, info: ObjectInfo) -> str:
    own = f"{human_bytes(info.own_bytes)} of its own"
    if info.shared_bytes:
        own += f", of which {human_bytes(info.shared_bytes)} are shared with newer objects"
    if not info.referenced_bytes:
        return own
    older = [f"{human_bytes(parent['nbytes'])} of {_label(store, parent['id'])}" for parent in info.parents]
    if len(older) > MAX_PARENTS:
        older[MAX_PARENTS:] = [f"{len(older) - MAX_PARENTS} more"]
    return f"{own}; {human_bytes(info.referenced_bytes)} in older objects: {', '.join(older)}"


def _label(store: Store, oid: str | None) -> str:
    """An object's ID, with its names."""
    if oid is None:
        return "objects that are not determined"
    try:
        names = store.info(oid).names
    except EntrepotError:  # deleted in the meantime, or of another scope
        names = []
    return f"{oid} ({printable(', '.join(names))})" if names else oid
