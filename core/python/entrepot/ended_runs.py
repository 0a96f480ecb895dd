"""Finding sessions whose runs are over, according to the orchestrators that ran them.

Plugins register through the entry-point group ``entrepot.ended_runs``. An entry's name is the first part of its
sessions' names (``airflow`` for ``airflow/etl/manual__1``). Its function takes a store, a scope and sessions of that
scope, and returns those whose values are no longer needed, with the reason::

    def ended_runs(store: Store, scope: str, sessions: Sequence[str]) -> Mapping[str, str]:
        return {"airflow/etl/manual__1": "its run was deleted"}

Sessions that it does not return are kept. If it cannot check, because nothing here tells which installation the scope
belongs to, it raises :class:`NotLookedAt` with what is missing, which is reported. It is called only with sessions of
its own name; before importing its orchestrator, it checks the scope, because it knows nothing about the sessions of
other deployments.
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
    """The runs of a scope cannot be checked from here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which orchestrators' runs were checked, and which not.

    Attributes:
        looked_at: the orchestrators checked.
        not_looked_at: by orchestrator and scope: what was missing.
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
    """Return the registered entry points by the first part of their sessions' names, without importing any."""
    return {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINT_GROUP)}


def host_of(session: str, known: Iterable[str]) -> str | None:
    """Return the orchestrator that a session belongs to; None: none of the known ones."""
    first, slash, _ = session.partition("/")
    return first if slash and first in known else None


def ended(store: Store, sessions: Iterable[tuple[str, str]]) -> tuple[dict[tuple[str, str], str], list[str], Asked]:
    """Find the sessions that are no longer needed.

    Args:
        store: the store that has them.
        sessions: as (scope, session).

    Returns:
        The reason for each such session; errors met while checking, as text for people; and which orchestrators were
        asked.
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
        except Exception as error:  # orchestrators' libraries raise anything: keep their sessions and report it
            log.debug("asking %s about scope %s", host, scope, exc_info=True)
            problems.append(f"{host} cannot say which runs of scope {scope!r} ended: {type(error).__name__}: {error}")
            continue
        told.looked_at.add(host)
        found.update({(scope, session): why for session, why in said.items() if session in names})
    return found, problems, told
