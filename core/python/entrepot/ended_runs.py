"""Which sessions belong to runs that are over, as the hosts that ran them know.

A package that hands values over for a host says so by the entry-point group ``entrepot.ended_runs``. An entry is named
by the first part of its sessions' names (``airflow`` for ``airflow/etl/manual__1``). Its function gets a store, a scope
and sessions of it, and returns why the values of some of them are not needed any more::

    def ended_runs(store: Store, scope: str, sessions: Sequence[str]) -> Mapping[str, str]:
        return {"airflow/etl/manual__1": "its run was deleted"}

A session that it does not name is kept. Where it cannot look, because nothing here says which installation the scope is
of, it raises :class:`NotLookedAt` with what is missing, and that is told. It is asked about sessions of its own name
only; before it imports its host, it looks at the scope, because the sessions of another deployment say nothing to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from entrepot._store import Store

ENTRY_POINT_GROUP = "entrepot.ended_runs"
Provider = Callable[["Store", str, Sequence[str]], Mapping[str, str]]

log = logging.getLogger(__name__)


class NotLookedAt(Exception):  # noqa: N818: no failure
    """The runs of a scope cannot be looked at from here; its text says what is missing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose runs were looked at, and whose not.

    Attributes:
        looked_at: the hosts.
        not_looked_at: by host and scope: what is missing.
    """

    looked_at: set[str] = field(default_factory=set[str])
    not_looked_at: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def __str__(self) -> str:
        told = [f"looked at the runs of {', '.join(sorted(self.looked_at))}"] if self.looked_at else []
        told += [
            f"did not look at the runs of {host} in scope {scope!r} ({why})"
            for (host, scope), why in sorted(self.not_looked_at.items())
        ]
        return "; ".join(told)


def providers() -> dict[str, metadata.EntryPoint]:
    """Who can be asked, by the first part of the sessions' names; nothing is imported."""
    return {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINT_GROUP)}


def host_of(session: str, known: Iterable[str]) -> str | None:
    """Whose session it is; None: nobody's that is known."""
    first, slash, _ = session.partition("/")
    return first if slash and first in known else None


def ended(store: Store, sessions: Iterable[tuple[str, str]]) -> tuple[dict[tuple[str, str], str], list[str], Asked]:
    """Which sessions are not needed any more.

    Args:
        store: the store that has them.
        sessions: as (scope, session).

    Returns:
        Why, for those; what could not be found out, for people; and who was asked.
    """
    known = providers()
    asked: dict[tuple[str, str], list[str]] = {}
    for scope, session in sessions:
        host = host_of(session, known)
        if host is not None:
            asked.setdefault((host, scope), []).append(session)
    found: dict[tuple[str, str], str] = {}
    problems: list[str] = []
    told = Asked()
    for (host, scope), names in asked.items():
        try:
            said = cast("Provider", known[host].load())(store, scope, names)
        except NotLookedAt as error:
            told.not_looked_at[host, scope] = str(error)
            continue
        except Exception as error:  # whatever a host's libraries raise: its sessions are kept, and that is said
            log.debug("asking %s about scope %s", host, scope, exc_info=True)
            problems.append(f"{host} cannot say which runs of scope {scope!r} ended: {type(error).__name__}: {error}")
            continue
        told.looked_at.add(host)
        found.update({(scope, session): why for session, why in said.items() if session in names})
    return found, problems, told
