"""A value in brief, for the pages of an orchestrator: where it is, how large it is, and what is in it.

For servers that show what tasks have passed on. Nothing is unpickled; nothing is fetched from other hosts, or loaded
from disk unless it is small; and looking does not count as a use of the value's session. A preview is text only, so it
keeps nothing of the store mapped.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from entrepot import garbage, raw_objects
from entrepot.errors import EntrepotError, ObjectNotFound, UnsupportedType
from entrepot.first_rows import cell_text

from entrepot_io.reference import Reference
from entrepot_io.table_info import Column, table_info

if TYPE_CHECKING:
    from entrepot import ObjectInfo, Store

HEAD_ROWS = 10
LOADED_BYTES = 64 << 20  # largest value that is loaded from disk to be shown
PLAIN_BYTES = 1 << 20  # largest dictionary, list or text of which the beginning is shown
NUMBERS = 10  # first elements of an array
_PICKLES = ("python.pickle",)


@dataclass(frozen=True)
class Preview:
    """A value in brief.

    Attributes:
        reference: to it.
        place: where it is, as text: in memory or on disk, and on which host.
        present: whether this host's store has it.
        problem: why the value, or what is in it, is not shown; empty: it is.
        own_bytes, shared_bytes: bytes that it adds to the store, and how many of these other objects refer to, too;
            None: not known here.
        referenced_bytes: bytes that it uses of older objects.
        names: of the object, in its session.
        readers: processes that have it mapped now.
        rows: of a table or a collection of tables.
        columns: the schema of a table.
        head, head_columns: its first rows, as text.
        text: the beginning of a value that is no table.
    """

    reference: Reference
    place: str
    present: bool = False
    problem: str = ""
    own_bytes: int | None = None
    shared_bytes: int | None = None
    referenced_bytes: int = 0
    names: list[str] = field(default_factory=list[str])
    readers: list[int] = field(default_factory=list[int])
    rows: int | None = None
    columns: list[Column] = field(default_factory=list[Column])
    head: list[list[str]] = field(default_factory=list[list[str]])
    head_columns: list[str] = field(default_factory=list[str])
    text: str = ""


def preview_of(reference: Reference, *, address: str | None = None) -> Preview:
    """Describe the value that a reference names. What cannot be shown is said in the preview; no error is raised.

    Args:
        reference: to the value.
        address: of this host's store; None: the one that ``entrepot.connect`` finds. No store is started.
    """
    import entrepot

    elsewhere = f"on host {reference.host}"
    try:
        if not garbage.store_answers(address):
            return Preview(reference, elsewhere, problem="no store answers on this server's host")
        with entrepot.connect(
            address, scope=reference.scope, session="", allow_pickle=False, object_strings="arrow"
        ) as store:
            return _describe(store, reference)
    except EntrepotError as error:
        return Preview(reference, elsewhere, problem=str(error))


def _describe(store: Store, reference: Reference) -> Preview:
    if store.instance_id != reference.instance and store.host != reference.host:
        return Preview(
            reference,
            f"on host {reference.host}",
            problem=f"this server is on host {store.host}, and does not fetch values to show them",
        )
    lost = Preview(
        reference,
        f"nowhere any more (it was on host {reference.host})",
        problem="it is no longer in the store: it was deleted or replaced, or its session has ended",
    )
    try:
        if raw_objects.generation_of(store, reference.id) != reference.generation:
            return lost
        info = store.info(reference.id)
    except ObjectNotFound:
        return lost
    facts: dict[str, Any] = {
        "present": True,
        "place": f"{'on the disk' if info.state == 'spilled' else 'in the memory'} of host {store.host}",
        "own_bytes": info.own_bytes,
        "shared_bytes": info.shared_bytes,
        "referenced_bytes": info.referenced_bytes,
        "names": info.names,
        "readers": sorted({int(reader["pid"]) for reader in info.pinned_by if "pid" in reader}),
    }
    return Preview(reference, **facts, **_contents(store, reference, info))


def _contents(store: Store, reference: Reference, info: ObjectInfo) -> dict[str, Any]:
    """What is in the value; it is read only if that is cheap."""
    if info.type in _PICKLES:
        return {"problem": "its content is pickled, and pickles are not opened here"}
    if info.state == "spilled" and info.nbytes > LOADED_BYTES:
        return {"problem": "its content is on the disk, and too large to be loaded only to be shown"}
    if info.type.startswith("python.") and info.nbytes > PLAIN_BYTES:
        return {"problem": "its content is too large to be shown"}
    try:
        value, generation = store.get_versioned(reference.id, remote=False)
        if generation != reference.generation:
            return {"problem": "it was replaced by a later attempt"}
        return _shown(value)
    except UnsupportedType as error:
        pickled = "pickle" in str(error)
        return {"problem": "a part of it is pickled, and pickles are not opened here" if pickled else str(error)}
    except EntrepotError as error:
        return {"problem": str(error)}
    except ImportError as error:
        return {"problem": f"its content cannot be shown here: {error}"}


def _shown(value: Any) -> dict[str, Any]:
    table = table_info(value, HEAD_ROWS)
    if table is not None:
        return {
            "rows": table.rows,
            "columns": table.columns,
            "head": table.head,
            "head_columns": table.head_columns,
        }
    if type(value).__module__ == "numpy" and hasattr(value, "flat"):
        head = ", ".join(cell_text(number, str) for number, _ in zip(value.flat, range(NUMBERS), strict=False))
        return {"text": f"{value.dtype}, {head}{', …' if value.size > NUMBERS else ''}"}
    return {"text": cell_text(value, _brief.repr)}


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 400
_brief.maxdict = _brief.maxlist = _brief.maxtuple = _brief.maxset = 20
_brief.maxlevel = 4
