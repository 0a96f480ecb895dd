"""Values that no XCom refers to, in the sessions of runs that have ended.

They are those of tasks that were killed before Airflow had their XCom, and those whose XCom was deleted. Nothing tells
where they are, so all values of such a session are listed and looked up. A store may keep a million of them, and the
scheduler forks no task meanwhile: so a search has a limit, and the next one goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from entrepot.errors import ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.inventory import page_of_session
from entrepot_io.sessions import run_session

from entrepot_airflow.compat.run_records import referenced_ids
from entrepot_airflow.lifetime.decisions import Run
from entrepot_airflow.lifetime.judgement import ORCHESTRATOR

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.inventory import ObjectListing
    from sqlalchemy.orm import Session

SESSION_COST = 500  # of a session, however few objects it has: what its query takes, in objects listed


class OrphanSearch:
    """Looks for such values, in one session after the other.

        waiting --its turn--> listed, page by page --the last page--> waiting, behind all others
                                `--the limit is reached--> waiting, first in line, with the page to begin at

    Args:
        limit: objects that one :meth:`find` lists, to within a page of 1000; None: it lists all.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._line: dict[str, int] = {}  # sessions in the order of their turns, and where to begin in each

    def find(
        self, store: Store, scope: str, runs: Mapping[str, Run], database: Session
    ) -> Iterator[tuple[str, ObjectListing]]:
        """Yield values that no XCom refers to, with their session, as far as the limit allows.

        Args:
            store: any session of the store.
            scope: of the installation.
            runs: the sessions to search, each with its run.
            database: database session.

        Raises:
            EntrepotError: the store does not answer.
            SQLAlchemyError: the database does not answer.
        """
        self._line = {session: begin for session, begin in self._line.items() if session in runs}
        self._line |= {session: 0 for session in runs if session not in self._line}
        left = self._limit
        for session in list(self._line):
            cursor: int | None = self._line[session]
            referenced: set[str] | None = None
            if left is not None:
                if left <= 0:
                    return
                left -= SESSION_COST
            while cursor is not None:
                try:
                    listed, cursor = page_of_session(store, scope, session, cursor)
                except ObjectNotFound:
                    break  # it has expired in the meantime
                if left is not None:
                    left -= len(listed)
                values = [listing for listing in listed if _is_xcom(listing, runs[session])]
                if values and referenced is None:
                    referenced = referenced_ids(runs[session], database)
                for listing in values:
                    if referenced is not None and str(listing.id) not in referenced:
                        yield session, listing
                if left is not None and left <= 0 and cursor is not None:
                    self._line[session] = cursor
                    return
            del self._line[session]
            self._line[session] = 0


def _is_xcom(listing: ObjectListing, run: Run) -> bool:
    """Whether an object is the value of an XCom: its ID is derived from its only name; others are not Airflow's."""
    if len(listing.names) != 1:
        return False
    (name,) = listing.names
    derived = ObjectID.derive(listing.scope, run_session(ORCHESTRATOR, *run), name)
    return name.count("/") == 2 and derived == listing.id
