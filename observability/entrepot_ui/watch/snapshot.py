"""All objects of a store at one time: searched, sorted and cut into pages here, so that nobody is sent all of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_ui.watch.rows import SORT_KEYS, ObjectRow, groups_of

MAX_PAGE = 1000
MAX_QUERY = 200  # characters of a search
LARGEST_GROUPS = 40
_KEPT_ORDERS = 6


@dataclass(frozen=True, slots=True)
class Query:
    """What a view shows of the objects.

    Attributes:
        search: words that must all occur in an object's ID, names, type, session, set or state.
        sort: a key of ``SORT_KEYS``.
        descending: largest first.
    """

    search: str = ""
    sort: str = "nbytes"
    descending: bool = True


@dataclass
class Snapshot:
    """The objects at one time.

    Attributes:
        rows: all of them.
        taken_at: seconds since 1970.
        truncated: there are more, which are not listed.
    """

    rows: Sequence[ObjectRow] = ()
    taken_at: float = 0.0
    truncated: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    # Both guarded by _lock; the first is in order of use.
    _orders: dict[Query, list[ObjectRow]] = field(default_factory=dict[Query, list[ObjectRow]], repr=False)
    _groups: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]], repr=False)

    def matching(self, query: Query) -> list[ObjectRow]:
        """All objects of a query, in its order. Do not change the list: it is kept.

        Raises:
            InvalidArgument: there is no such key to sort by, or the search is too long.
        """
        with self._lock:
            matches = self._orders.pop(query, None)
            if matches is None:
                matches = _evaluate(self.rows, query)
            self._orders[query] = matches
            while len(self._orders) > _KEPT_ORDERS:
                del self._orders[next(iter(self._orders))]
            return matches

    def page(self, query: Query, offset: int, limit: int) -> dict[str, Any]:
        """One page of a query as JSON.

        Raises:
            InvalidArgument: as ``matching``; or a page that cannot be.
        """
        if offset < 0 or not 1 <= limit <= MAX_PAGE:
            raise InvalidArgument(
                f"a page has an offset of 0 or more and 1 to {MAX_PAGE} rows, not offset {offset} and {limit} rows"
            )
        matches = self.matching(query)
        return {
            "rows": [row.to_json() for row in matches[offset : offset + limit]],
            "matched": len(matches),
            "matched_bytes": sum(row.nbytes for row in matches) if query.search else None,
            "total": len(self.rows),
            "offset": offset,
            "truncated": self.truncated,
            "taken_at": self.taken_at,
        }

    def groups(self, by: str) -> list[dict[str, Any]]:
        """Objects and bytes by session, locality set, type or state, largest first."""
        with self._lock:
            if by not in self._groups:
                self._groups[by] = groups_of(self.rows, by, LARGEST_GROUPS)
            return self._groups[by]

    def prepare(self, former: Snapshot) -> None:
        """Evaluate the queries that were asked of the former snapshot, so that the next ones need not wait.

        A list that is being sorted stops all threads. Sorting is quickest for what is nearly in order, which the former
        snapshot's objects are.
        """
        with former._lock:
            orders, groupings = list(former._orders.items()), list(former._groups)
        rows = {row.id: row for row in self.rows}
        for query, former_order in orders[-2:]:
            nearly = [row for old in former_order if (row := rows.get(old.id)) is not None]
            before = {row.id for row in nearly}
            nearly += [row for row in self.rows if row.id not in before]
            ordered = _evaluate(nearly, query)
            with self._lock:
                self._orders[query] = ordered
        for by in groupings:
            self.groups(by)


def _evaluate(rows: Sequence[ObjectRow], query: Query) -> list[ObjectRow]:
    if query.sort not in SORT_KEYS:
        raise InvalidArgument(f"objects are sorted by {', '.join(SORT_KEYS)}, not by {query.sort!r}")
    if len(query.search) > MAX_QUERY:
        raise InvalidArgument(f"a search has at most {MAX_QUERY} characters, not {len(query.search)}")
    matches = list(rows)
    for word in query.search.lower().split():
        matches = [row for row in matches if word in row.text]
    matches.sort(key=SORT_KEYS[query.sort], reverse=query.descending)
    return matches
