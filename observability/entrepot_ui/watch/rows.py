"""Objects as rows of a table, and groups of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from entrepot.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """An object in the table.

    Attributes:
        id, generation: identify it.
        type: the codec that wrote it; for a collection, what its members are.
        nbytes: payload, with what is inline in its metadata.
        state: ``"sealed"`` or ``"spilled"``.
        scope, session, locality_set: where it belongs.
        names: its names in that session, joined by commas.
        created: in seconds since 1970.
        blobs: number of ranges of shared memory that it refers to; 0: its payload is in its metadata.
        kept: a user asked to keep it in memory.
        text: what a search looks through, in lower case.
    """

    id: str
    generation: int
    type: str
    nbytes: int
    state: str
    scope: str
    session: str
    locality_set: str
    names: str
    created: float
    blobs: int
    kept: bool
    text: str

    @property
    def place(self) -> str:
        """Scope and session, for people."""
        return f"{self.scope}: {self.session}" if self.session else self.scope

    def to_json(self) -> dict[str, Any]:
        """What the page gets."""
        row = asdict(self)
        del row["text"]
        row["created"] = round(self.created, 3)
        return row


SORT_KEYS: dict[str, Callable[[ObjectRow], Any]] = {
    "nbytes": attrgetter("nbytes"),
    "created": attrgetter("created"),
    "names": attrgetter("names"),
    "type": attrgetter("type"),
    "state": attrgetter("state"),
    "session": attrgetter("scope", "session"),
    "locality_set": attrgetter("locality_set"),
    "id": attrgetter("id"),
}
GROUPINGS: dict[str, Callable[[ObjectRow], str]] = {
    "session": lambda row: row.place,
    "locality_set": lambda row: row.locality_set or "(default)",
    "type": lambda row: row.type or "(unknown)",
    "state": lambda row: row.state,
}


def row_of(record: dict[str, Any], type_name: str, nbytes: int) -> ObjectRow:
    """Build a row from a record of the daemon's list, and what the object's metadata says."""
    names = ", ".join(record["names"])
    state, scope, session, locality_set = record["state"], record["scope"], record["session"], record["locality_set"]
    text = f"{record['id']} {names} {type_name} {scope} {session} {locality_set} {state}".lower()
    return ObjectRow(
        id=record["id"],
        generation=record["generation"],
        type=type_name,
        nbytes=nbytes,
        state=state,
        scope=scope,
        session=session,
        locality_set=locality_set,
        names=names,
        created=record["sealed_unix_ns"] / 1e9,
        blobs=record["blob_count"],
        kept=record["user_pinned"],
        text=text,
    )


def groups_of(rows: Iterable[ObjectRow], by: str, largest: int) -> list[dict[str, Any]]:
    """Count objects and bytes by session, locality set, type or state, largest first; the rest is one group.

    Args:
        rows: the objects.
        by: a key of ``GROUPINGS``.
        largest: number of groups that are listed by name.
    """
    try:
        label = GROUPINGS[by]
    except KeyError:
        raise InvalidArgument(f"objects are grouped by {', '.join(GROUPINGS)}, not by {by!r}") from None
    sums: dict[str, list[int]] = {}
    for row in rows:
        entry = sums.setdefault(label(row), [0, 0, 0])
        entry[0] += 1
        entry[1] += row.nbytes
        if row.state == "spilled":
            entry[2] += row.nbytes
    ordered = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    groups = [
        {"name": name, "objects": count, "nbytes": nbytes, "spilled_bytes": spilled}
        for name, (count, nbytes, spilled) in ordered[:largest]
    ]
    if rest := ordered[largest:]:
        totals = [sum(entry[index] for _, entry in rest) for index in range(3)]
        groups.append(
            {
                "name": f"({len(rest)} others)",
                "objects": totals[0],
                "nbytes": totals[1],
                "spilled_bytes": totals[2],
                "others": True,
            }
        )
    return groups
