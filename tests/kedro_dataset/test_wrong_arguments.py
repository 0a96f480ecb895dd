"""Arguments of catalog entries that are wrong are refused with their names, and what to write instead."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import entrepot
import kedro.framework.project
import kedro_runs
import numpy as np
import pytest
from click.testing import CliRunner
from entrepot.errors import InvalidArgument
from entrepot_io.connections import close_all
from entrepot_kedro import EntrepotDataset, catalog_config
from entrepot_kedro.commands import entrepot_commands
from entrepot_kedro.policy import policy_registry
from entrepot_kedro.values.sessions import Session
from kedro.io import DataCatalog, DatasetError
from kedro.pipeline import node, pipeline


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": 2024}, r"name of a dataset must be text, not 2024 \(int\); YAML takes what is in quotes for text"),
        ({"name": ""}, "must not be empty"),
        ({"name": "@pandas"}, "a name comes before its only '@'"),
        ({"name": "cars@pandas@polars"}, "a name comes before its only '@'"),
        ({"name": "cars\ud800"}, "must be valid Unicode"),
        ({"name": "cars", "session": 7}, "session of a dataset must be text, not 7"),
        ({"name": "cars", "scope": ["a"]}, "scope of a dataset must be text"),
        ({"name": "cars", "address": 7}, "address of a dataset must be text"),
        ({"name": "cars", "copy_mode": ["assign"]}, "copy_mode of a dataset must be text"),
        ({"name": "cars", "version": "2024-01-01"}, "must be a kedro.io.Version, not '2024-01-01'.*versioned: true"),
        ({"name": "cars", "load_args": ["columns"]}, "load_args must be a mapping with as and columns"),
        ({"name": "cars", "load_args": {"column": ["a"]}}, "load_args has no argument 'column', only"),
        ({"name": "cars", "save_args": ["columns"]}, "save_args must be a mapping with as and columns"),
        (
            {"name": "cars", "save_args": {"as": "polars.lazy"}},
            "save_args: as must be one of pandas, polars, arrow, numpy",
        ),
        (
            {"name": "cars", "save_args": {"columns": "a"}},
            "save_args: columns must be a list of names or of integer",
        ),
    ],
    ids=str,
)
def test_it_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        EntrepotDataset(**arguments)


def negative(value: int) -> int:
    return -value


def test_two_outputs_under_one_name_are_refused_before_they_are_made(in_scope_tests: None) -> None:
    made: list[str] = []

    def make(name: str) -> Any:
        def run() -> str:
            made.append(name)
            return name

        return run

    nodes = pipeline([node(make(name), None, f"{name}.rates", name=name) for name in ("north", "south")])
    with pytest.raises(InvalidArgument, match=r"north\.rates, south\.rates of this run are all stored as 'rates'"):
        kedro_runs.run(nodes, {"{space}.{name}": {"type": "entrepot_kedro.EntrepotDataset", "name": "{name}"}})
    assert made == []


def test_a_name_in_one_store_under_two_addresses_is_one(
    in_scope_tests: None, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, file = daemon.address.rpartition("/")
    nodes = pipeline([node(lambda: 1, None, "north"), node(lambda: 2, None, "south")])
    entry = {"type": "entrepot_kedro.EntrepotDataset", "name": "rates"}
    for other in (daemon.address, f"{folder}/../{Path(folder).name}/{file}"):
        with pytest.raises(InvalidArgument, match="north, south of this run are all stored as 'rates'"):
            kedro_runs.run(nodes, {"north": entry, "south": entry | {"address": other}})


def test_a_setting_that_is_wrong_is_named(in_scope_tests: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_COPY", "sometimes")
    with pytest.raises(InvalidArgument, match=r"not 'sometimes' \(set by ENTREPOT_COPY\)"):
        EntrepotDataset(name="cars")


def test_a_durable_folder_that_cannot_be_written_is_reported_before_the_first_node(
    in_scope_tests: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return 1

    nodes = pipeline([node(make, None, "x"), node(negative, "x", "y")])
    monkeypatch.setenv("ENTREPOT_DURABLE", "/proc/nowhere")
    with pytest.raises(InvalidArgument, match=r"ENTREPOT_DURABLE is /proc/nowhere, where nothing can be written"):
        kedro_runs.run(nodes, {"{name}": {"type": "entrepot_kedro.EntrepotDataset"}})
    assert made == []
    monkeypatch.delenv("ENTREPOT_DURABLE")
    with entrepot.connect() as store:
        assert not [info.session for info in store.sessions() if info.scope == "tests" and info.session]


def test_a_wrong_argument_of_the_allow_list_is_named(
    in_scope_tests: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "local").mkdir()
    (tmp_path / "base" / "entrepot.yml").write_text("intermediates:\n  dataset: {session_tll: 2d}\n")
    nodes = pipeline([node(lambda: 1, None, "x"), node(negative, "x", "y")])
    with pytest.raises(
        DatasetError, match=r"(?s)dataset of the allow-list, \{'session_tll': '2d'\}: .*unexpected keyword"
    ):
        kedro_runs.run(nodes, context=kedro_runs.Context(str(tmp_path)))


def test_a_value_of_a_run_that_is_loaded_outside_of_it(in_scope_tests: None) -> None:
    nodes = pipeline([node(lambda: 1, None, "x"), node(negative, "x", "y")])
    config = {"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}
    kedro_runs.run(nodes, config)
    with pytest.raises(DatasetError, match=r"dataset 'x' is not in session .* Take them from what session\.run"):
        DataCatalog.from_config(catalog_config(config)).load("x")


@pytest.mark.parametrize("age", ["soon", "0.5s", "-1d", ""])
def test_an_age_that_gc_cannot_read_is_refused_as_one(age: str) -> None:
    outcome = CliRunner().invoke(entrepot_commands, ["gc", "--older-than", age])
    assert outcome.exit_code == 2
    assert "Invalid value for '--older-than'" in outcome.output
    assert f"such as 90s, 2h or 7d, or 0s, but got {age!r}" in " ".join(outcome.output.split())


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        (["status"], 0, "nothing is stored"),
        (["gc"], 0, "nothing to remove"),
        (["checkpoint", "saved"], 1, "no store runs"),
        (["resume"], 1, "no store runs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_starts_no_store(
    arguments: list[str], exit_code: int, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ENTREPOT_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    outcome = CliRunner().invoke(entrepot_commands, arguments, obj=SimpleNamespace(project_path=tmp_path))
    assert outcome.exit_code == exit_code, outcome.output
    assert text in outcome.output
    assert not list(tmp_path.rglob("*.sock"))


@pytest.mark.parametrize("setting", [["a.yaml"], {"path": "a.yaml"}, b"a.yaml", 1])
def test_a_policy_that_is_no_path_is_refused(setting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENTREPOT_POLICY", raising=False)
    monkeypatch.setattr(kedro.framework.project, "PACKAGE_NAME", "shop")
    monkeypatch.setattr(kedro.framework.project, "settings", SimpleNamespace(ENTREPOT_POLICY=setting))
    with pytest.raises(InvalidArgument, match=r"ENTREPOT_POLICY in settings\.py must be the path of a policy file"):
        policy_registry.active()


def test_a_release_of_a_store_that_is_away_fails_no_run(
    daemon: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    dataset = EntrepotDataset(name="numbers", scope="tests")
    dataset._session = Session("kedro/run", ends_with_run=True)
    dataset.save(np.arange(10_000))
    daemon.stop()
    close_all()
    with caplog.at_level(logging.WARNING):
        dataset.release()
    assert "cannot release numbers; it stays until its session ends" in caplog.text
