"""Keys, sessions and scopes: deterministic, unambiguous, and within the store's length limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID
from entrepot_io.keys import (
    MAX_NAME_BYTES,
    airflow_key,
    dagster_asset_key,
    dagster_output_key,
    join,
    kedro_key,
    object_name,
    shorten,
)
from entrepot_io.scopes import MAX_SCOPE_BYTES, folder_scope, scope_of
from entrepot_io.sessions import DEFAULT_TTL_SECONDS, MAX_SESSION_BYTES, parse_ttl, run_session
from hypothesis import given
from hypothesis import strategies as st

parts = st.lists(st.text(alphabet="ab/%@[]:\u00e9", max_size=4), min_size=1, max_size=3)


@given(parts, parts)
def test_different_parts_give_different_keys(first: list[str], other: list[str]) -> None:
    assert (join(first) == join(other)) == (first == other)
    assert (dagster_asset_key(first) == dagster_asset_key(other)) == (first == other)
    assert (dagster_output_key(first) == dagster_output_key(other)) == (first == other)


texts = st.text(alphabet="ab/%@[]0-", max_size=4)
xcoms = st.tuples(texts, texts, st.none() | st.integers(-1, 12), texts)


@given(xcoms, xcoms)
def test_different_xcoms_have_different_keys(
    first: tuple[str, str, int | None, str], other: tuple[str, str, int | None, str]
) -> None:
    same = [(dag, task, -1 if index is None else index, key) for dag, task, index, key in (first, other)]
    assert (airflow_key(*first) == airflow_key(*other)) == (same[0] == same[1])


@given(st.tuples(texts, st.none() | texts), st.tuples(texts, st.none() | texts))
def test_different_partitions_and_versions_have_different_keys(
    first: tuple[str, str | None], other: tuple[str, str | None]
) -> None:
    assert (dagster_asset_key([first[0]], first[1]) == dagster_asset_key([other[0]], other[1])) == (first == other)
    assert (kedro_key(*first) == kedro_key(*other)) == (first == other)


def test_keys_are_readable() -> None:
    assert airflow_key("etl", "group.load", -1, "return_value") == "etl/group.load/return_value"
    assert airflow_key("etl", "load", 0, "return_value") == "etl/load[0]/return_value"
    assert dagster_asset_key(["raw", "orders"], "2026-01-01|eu") == "asset:raw/orders@2026-01-01|eu"
    assert dagster_output_key(["load", "result", "part_1"]) == "op:load/result/part_1"
    assert kedro_key("namespace.model_input") == "dataset:namespace.model_input"


def test_ids_are_the_same_in_another_process() -> None:
    """A retry runs in another process, with a different seed of Python's hash()."""
    code = (
        "from entrepot.ids import ObjectID; from entrepot_io.keys import airflow_key; "
        "print(ObjectID.derive('scope', 'session', airflow_key('etl', 'load', 3, 'k')))"
    )
    derived = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    assert derived == str(ObjectID.derive("scope", "session", airflow_key("etl", "load", 3, "k")))


@pytest.mark.parametrize("bad", [[], ["a", 3], [None]])
def test_bad_parts_are_refused(bad: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        join(bad)


@given(st.text(max_size=600), st.text(max_size=600))
def test_names_fit_and_stay_apart(first: str, other: str) -> None:
    assert len(object_name(first).encode()) <= MAX_NAME_BYTES
    assert (object_name(first) == object_name(other)) == (first == other)


def test_short_names_are_left_alone() -> None:
    assert shorten("dataset:größe", 20) == "dataset:größe"
    assert shorten("x" * 30, 20).startswith("xxx~")


def test_session_names_fit() -> None:
    long = run_session("airflow", "d" * 250, "manual__2026-01-01T00:00:00+00:00" + "r" * 200)
    assert len(long.encode()) <= MAX_SESSION_BYTES
    assert long != run_session("airflow", "d" * 250, "manual__2026-01-01T00:00:00+00:00" + "r" * 201)
    assert run_session("airflow", "a/b", "c") != run_session("airflow", "a", "b/c")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, DEFAULT_TTL_SECONDS),
        (90, 90),
        ("90", 90),
        ("30m", 1800),
        ("30min", 1800),
        ("24h", 86400),
        (" 1.5 d ", 129600),
        ("1s", 1),
    ],
)
def test_times_to_live(value: float | str | None, seconds: float) -> None:
    assert parse_ttl(value) == seconds


@pytest.mark.parametrize("value", ["", "soon", "-1", -1, 0, "0", 0.5, float("inf"), float("nan"), "1w", True])
def test_bad_times_to_live_are_refused(value: float | str) -> None:
    with pytest.raises(InvalidArgument, match="time to live"):
        parse_ttl(value)


def test_scopes_tell_deployments_apart(tmp_path: Path) -> None:
    first, other = tmp_path / "one" / "airflow", tmp_path / "other" / "airflow"
    assert folder_scope("airflow", first) == folder_scope("airflow", first.parent / "." / "airflow")
    assert folder_scope("airflow", first) != folder_scope("airflow", other)
    assert folder_scope("airflow", first) != folder_scope("kedro", first)
    assert folder_scope("airflow", first).startswith("airflow-airflow-")


def test_scopes_follow_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert folder_scope("kedro", tmp_path / "link") == folder_scope("kedro", tmp_path / "real")


def test_scopes_fit() -> None:
    assert len(scope_of("dagster", "x" * 5000, "ä" * 5000).encode()) <= MAX_SCOPE_BYTES
