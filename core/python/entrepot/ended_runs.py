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
    from entrepot._store.store import Store

ENTRY_POINT_GROUP = "entrepot.ended_runs"
Provider = Callable[["Store", str, Sequence[str]], Mapping[str, str]]

_MAX_SHOWN = 3

log = logging.getLogger(__name__)


class NotLookedAt(Exception):
    """The runs of a scope cannot be checked from here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class CheckedRuns:
    """The orchestrators whose runs were checked, and those whose were not.

    Attributes:
        checked: the orchestrators checked.
        not_checked: by orchestrator and scope: what was missing.
    """

    checked: set[str] = field(default_factory=set[str])
    not_checked: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def __str__(self) -> str:
        phrases = [f"checked the runs of {', '.join(sorted(self.checked))}"] if self.checked else []
        scopes: dict[tuple[str, str], list[str]] = {}
        for (orchestrator, scope), why in sorted(self.not_checked.items()):
            scopes.setdefault((orchestrator, why), []).append(scope)
        phrases += [
            f"did not check the runs of {orchestrator} in {_scopes_phrase(names)} ({why})"
            for (orchestrator, why), names in scopes.items()
        ]
        return "\n".join(phrases)


def _scopes_phrase(scopes: Sequence[str]) -> str:
    shown = ", ".join(map(repr, scopes[:_MAX_SHOWN]))
    more = f" and {len(scopes) - _MAX_SHOWN} more" if len(scopes) > _MAX_SHOWN else ""
    return f"scope {shown}" if len(scopes) == 1 else f"the scopes {shown}{more}"


def providers() -> dict[str, metadata.EntryPoint]:
    """Return the registered entry points by the first part of their sessions' names, without importing any."""
    return {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINT_GROUP)}


def orchestrator_of(session: str, orchestrators: Iterable[str]) -> str | None:
    """Return the orchestrator that a session belongs to; None: none of the known ones."""
    first, slash, _ = session.partition("/")
    return first if slash and first in orchestrators else None


def find_ended_sessions(
    store: Store, sessions: Iterable[tuple[str, str]]
) -> tuple[dict[tuple[str, str], str], list[str], CheckedRuns]:
    """Find the sessions that are no longer needed.

    Args:
        store: the store that has them.
        sessions: as (scope, session).

    Returns:
        The reason for each such session; errors met while checking, as text for people; and which orchestrators were
        asked.
    """
    registered = providers()
    sessions_by_origin: dict[tuple[str, str], list[str]] = {}
    for scope, session in sessions:
        orchestrator = orchestrator_of(session, registered)
        if orchestrator is not None:
            sessions_by_origin.setdefault((orchestrator, scope), []).append(session)
    reasons: dict[tuple[str, str], str] = {}
    problems: list[str] = []
    checked_runs = CheckedRuns()
    for (orchestrator, scope), names in sessions_by_origin.items():
        try:
            answer = cast("Provider", registered[orchestrator].load())(store, scope, names)
        except NotLookedAt as error:
            checked_runs.not_checked[orchestrator, scope] = str(error)
            continue
        except Exception as error:  # orchestrators' libraries raise anything: keep their sessions and report it
            log.debug("cannot check the runs of %s in scope %s", orchestrator, scope, exc_info=True)
            problems.append(
                f"{orchestrator} cannot tell which runs of scope {scope!r} ended: {type(error).__name__}: {error}"
            )
            continue
        checked_runs.checked.add(orchestrator)
        reasons.update({(scope, session): why for session, why in answer.items() if session in names})
    return reasons, problems, checked_runs
