"""Where a Dagster output lives: which scope, which session, which key.

Assets are written in place and outlive runs: they are in the session of the scope itself. Outputs of ops belong to
their run: they are in its session, which ends some time after its last use. An ephemeral instance (``materialize``
without one, tests) takes its assets with it when it goes, so they are in a session that ends as well; unless there is a
scope that somebody named: that lasts, and the assets with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from dagster import DagsterInstance
from entrepot_io.keys import dagster_asset_key, dagster_output_key
from entrepot_io.scopes import folder_scope, scope_of
from entrepot_io.sessions import SCOPE_SESSION, run_session

# What OutputContext.get_identifier() starts with if Dagster memoizes by version instead of by run.
_VERSIONED = "versioned_outputs"


@dataclass(frozen=True)
class Place:
    """A session and a key in it."""

    session: str
    key: str


def default_scope(instance: DagsterInstance | None) -> str:
    """The scope of a Dagster instance: the ID of its run storage, which all its processes and hosts share."""
    if instance is None or instance.is_ephemeral:
        return "dagster-ephemeral"  # one for all: their sessions tell them apart, and end; a scope never does
    identity = _storage_id(instance)
    return folder_scope("dagster", instance.root_directory) if identity is None else scope_of("dagster", identity)


def asset_place(
    instance: DagsterInstance | None, path: Sequence[str], partition: str | None, *, named_scope: bool = False
) -> Place:
    """Where an asset, or one of its partitions, lives.

    Args:
        instance: that works with it.
        path: of its key.
        partition: which; None: it has none.
        named_scope: whether somebody named the scope, so that it is not the instance's own.
    """
    key = dagster_asset_key(path, partition)
    if named_scope:
        return Place(SCOPE_SESSION, key)
    if instance is None:
        return Place(run_session("dagster", "ephemeral"), key)
    if instance.is_ephemeral:
        return Place(run_session("dagster", "ephemeral", _storage_id(instance) or ""), key)
    return Place(SCOPE_SESSION, key)


def output_place(identifier: Sequence[str]) -> Place:
    """Where the output of an op lives.

    Args:
        identifier: run ID, step key, output name and perhaps a mapping key, as the contexts give it; the run is the
            parent of a re-execution for the steps that this did not run again.
    """
    if identifier[0] == _VERSIONED:
        return Place(SCOPE_SESSION, dagster_output_key(identifier))
    return Place(run_session("dagster", identifier[0]), dagster_output_key(identifier[1:]))


def run_of_session(session: str) -> str | None:
    """The run whose outputs are in a session, ``None`` if it is no session of a run."""
    prefix = run_session("dagster", "")
    return unescape(session.removeprefix(prefix)) if session.startswith(prefix) else None


def asset_of_key(key: str) -> tuple[list[str], str | None] | None:
    """Path and partition of the asset that a key names, ``None`` if it names an op's output."""
    kind, colon, rest = key.partition(":")
    if kind != "asset" or not colon:
        return None
    path, at, partition = rest.partition("@")
    return [unescape(part) for part in path.split("/")], partition if at else None


def unescape(part: str) -> str:
    """What :mod:`entrepot_io.keys` escaped."""
    return unquote(part)


def identity_of(instance: DagsterInstance | None) -> tuple[str, str] | None:
    """What tells a deployment from others, and the folder that people know it by; None: it is gone with its process."""
    if instance is None or instance.is_ephemeral:
        return None
    identity = _storage_id(instance)
    return (identity or instance.root_directory, instance.root_directory)


def _storage_id(instance: DagsterInstance) -> str | None:
    """The ID that a run storage made for itself, ``None`` if it is of a kind that has none."""
    identify = getattr(instance.run_storage, "get_run_storage_id", None)
    return None if identify is None else str(identify())
