"""Scope, session and key of a Dagster output.

Assets are written in place and outlive runs, so they are in the scope's own session. Outputs of ops belong to their
run, so they are in the run's session, which ends some time after its last use. The assets of an ephemeral instance
(``materialize`` without an instance, tests) end with it, so they are in an expiring session too, unless the user set a
scope: then they are kept in that scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from dagster import DagsterInstance
from entrepot_io.keys import dagster_asset_key, dagster_output_key
from entrepot_io.scopes import folder_scope, scope_of
from entrepot_io.sessions import SCOPE_SESSION, run_session

# First element of OutputContext.get_identifier() if Dagster memoizes by version instead of by run.
_VERSIONED = "versioned_outputs"
# By instance. The ID of a run storage never changes, and every look at it opens the database again, several times for
# each value. Threads that look at once find the same.
_storage_ids: WeakKeyDictionary[DagsterInstance, str] = WeakKeyDictionary()


@dataclass(frozen=True)
class OutputKey:
    """A session and a key in it."""

    session: str
    key: str


def default_scope(instance: DagsterInstance | None) -> str:
    """Return the scope of a Dagster instance: the ID of its run storage, which all its processes and hosts share."""
    if instance is None or instance.is_ephemeral:
        return "dagster-ephemeral"  # shared: their sessions tell them apart and expire, which scopes never do
    identity = _storage_id(instance)
    return folder_scope("dagster", instance.root_directory) if identity is None else scope_of("dagster", identity)


def key_of_asset(
    instance: DagsterInstance | None, path: Sequence[str], partition: str | None, *, explicit_scope: bool = False
) -> OutputKey:
    """Return the session and key of an asset, or of one of its partitions.

    Args:
        instance: the instance in use.
        path: path of the asset key.
        partition: partition key; None: not partitioned.
        explicit_scope: whether the user set the scope, so that it is not the instance's own.
    """
    key = dagster_asset_key(path, partition)
    if explicit_scope:
        return OutputKey(SCOPE_SESSION, key)
    if instance is None:
        return OutputKey(run_session("dagster", "ephemeral"), key)
    if instance.is_ephemeral:
        return OutputKey(run_session("dagster", "ephemeral", _storage_id(instance) or ""), key)
    return OutputKey(SCOPE_SESSION, key)


def key_of_output(identifier: Sequence[str]) -> OutputKey:
    """Return the session and key of an op's output.

    Args:
        identifier: run ID, step key, output name and, if present, mapping key, as given by the contexts. In a
            re-execution, the run of a step that it did not run again is the parent run.
    """
    if identifier[0] == _VERSIONED:
        return OutputKey(SCOPE_SESSION, dagster_output_key(identifier))
    return OutputKey(run_session("dagster", identifier[0]), dagster_output_key(identifier[1:]))


def run_of_session(session: str) -> str | None:
    """Return the run whose outputs are in a session; None if it is not a run's session."""
    prefix = run_session("dagster", "")
    return unescape(session.removeprefix(prefix)) if session.startswith(prefix) else None


def asset_of_key(key: str) -> tuple[list[str], str | None] | None:
    """Return path and partition of the asset that a key refers to; None if it refers to an op's output."""
    kind, colon, rest = key.partition(":")
    if kind != "asset" or not colon:
        return None
    path, separator, partition = rest.partition("@")
    return [unescape(part) for part in path.split("/")], partition if separator else None


def unescape(part: str) -> str:
    """Reverse the escaping of :mod:`entrepot_io.keys`."""
    return unquote(part)


def deployment_identity(instance: DagsterInstance | None) -> tuple[str, str] | None:
    """Return a deployment's identity, and the directory that people know it by; None: it ends with its process."""
    if instance is None or instance.is_ephemeral:
        return None
    identity = _storage_id(instance)
    return (identity or instance.root_directory, instance.root_directory)


def _storage_id(instance: DagsterInstance) -> str | None:
    """Return the ID that a run storage created for itself; None if its kind has none."""
    identity = _storage_ids.get(instance)
    if identity is None:
        get_storage_id = getattr(instance.run_storage, "get_run_storage_id", None)
        if get_storage_id is None:
            return None
        identity = _storage_ids[instance] = str(get_storage_id())
    return identity
