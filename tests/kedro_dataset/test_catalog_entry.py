"""A dataset gets its name from the configuration of its catalog or from the run that uses it, never by a guess."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_kedro import EntrepotDataset, catalog_config
from entrepot_kedro.stored_datasets import join_run
from kedro.io import AbstractDataset, CachedDataset, DataCatalog, DatasetError

ENTRY = {"type": "entrepot_kedro.EntrepotDataset"}


@pytest.fixture(autouse=True)
def _outside_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ENTREPOT_SESSION", "ENTREPOT_SCOPE", "AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_DAG_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def description(dataset: Any) -> dict[str, Any]:
    assert isinstance(dataset, EntrepotDataset)
    return dataset._describe()


def catalog(config: dict[str, Any], run_id: str | None = "run-1") -> DataCatalog:
    return DataCatalog.from_config(catalog_config(config, run_id=run_id))


def test_one_line_pattern() -> None:
    of_pattern = catalog({"{name}": ENTRY})
    for name in ("features", "namespace.model", "train/x", "données"):
        assert description(of_pattern.get(name))["name"] == name


def test_plain_entry_and_other_patterns() -> None:
    both = catalog({"features": ENTRY, "{space}.int_{name}": ENTRY})
    assert description(both["features"])["name"] == "features"
    assert description(both["a.int_b"])["name"] == "a.int_b"


def test_explicit_name_wins() -> None:
    assert description(catalog({"{name}": ENTRY | {"name": "{name}_kept"}})["features"])["name"] == "features_kept"


def test_a_catalog_is_a_run_of_its_own() -> None:
    first, second, same = (catalog({"{name}": ENTRY}, run)["x"] for run in ("a", "b", "a"))
    assert description(first)["session"] == "kedro/a"
    assert description(second)["session"] == "kedro/b"
    assert description(same)["session"] == "kedro/a"
    unnamed = {description(catalog({"{name}": ENTRY}, None)["x"])["session"] for _ in range(2)}
    assert len(unnamed) == 2


def test_session_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    config: dict[str, Any] = {"kept": ENTRY | {"session": ""}, "named": ENTRY | {"session": "mine"}, "{name}": ENTRY}
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "etl")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "manual__1")
    of_dag = catalog(config)
    sessions = {name: description(of_dag[name])["session"] for name in ("kept", "named", "x")}
    assert sessions == {"kept": "", "named": "mine", "x": "kedro/airflow/etl/manual__1"}
    monkeypatch.setenv("ENTREPOT_SESSION", "resumed")
    assert description(catalog(config)["x"])["session"] == "resumed"


def test_persistent_entries_are_not_ephemeral() -> None:
    both = catalog({"kept": ENTRY | {"session": ""}, "{name}": ENTRY})
    assert both["kept"]._EPHEMERAL is False
    assert both["x"]._EPHEMERAL is True


def test_survives_pickling_and_config() -> None:
    first = catalog({"{name}": ENTRY | {"copy": "always"}})
    dataset = first["x"]
    assert description(pickle.loads(pickle.dumps(dataset))) == description(dataset)
    assert description(DataCatalog.from_config(first.to_config()[0])["x"]) == description(dataset)


@pytest.mark.parametrize("cache", ["CachedDataset", "kedro.io.CachedDataset", CachedDataset])
def test_inside_a_cached_dataset(cache: Any) -> None:
    outer = catalog({"{name}": {"type": cache, "dataset": ENTRY}})["x"]
    assert isinstance(outer, CachedDataset)
    assert description(outer._dataset)["name"] == "x"


def test_other_entries_stay_as_they_are() -> None:
    config = {"report": {"type": "json.JSONDataset", "filepath": "x"}, "_anchor": ["a"], "mine": ENTRY | {"name": "m"}}
    named = catalog_config(config)
    assert named["report"] is config["report"]
    assert named["_anchor"] is config["_anchor"]
    assert named["mine"]["name"] == "m"
    assert config["mine"] == ENTRY | {"name": "m"}, "the configuration itself is not changed"


@pytest.mark.parametrize("config", [None, [], "catalog.yml", {7: ENTRY}])
def test_what_is_no_configuration_is_refused(config: Any) -> None:
    with pytest.raises(InvalidArgument, match="a mapping of entries by name") as caught:
        catalog_config(config)
    assert repr(config) in str(caught.value)


class Pair(AbstractDataset[Any, Any]):
    """Creates two datasets from configuration under the same inner name, as Kedro's wrappers do."""

    def __init__(self, inner: dict[str, Any]) -> None:
        self.parts = [AbstractDataset.from_config("_part", inner) for _ in range(2)]

    def load(self) -> Any:
        return [part.load() for part in self.parts]

    def save(self, data: Any) -> None:
        for part, value in zip(self.parts, data, strict=True):
            part.save(value)

    def _describe(self) -> dict[str, Any]:
        return {}


def test_inside_other_datasets_there_is_no_guessed_name() -> None:
    """Otherwise two values with the same name would overwrite each other."""
    pair = catalog({"x": {"type": Pair, "inner": ENTRY}})["x"]
    with pytest.raises(DatasetError, match="needs a name: pass"):
        pair.save([1, 2])


class Subclass(EntrepotDataset):
    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)


def test_subclasses_get_their_name() -> None:
    assert description(catalog({"x": {"type": Subclass}})["x"])["name"] == "x"


def test_a_run_names_what_its_catalog_has_and_keeps_what_it_was_given() -> None:
    given: dict[str, Any] = {
        "plain": Subclass(),
        "form@pandas": EntrepotDataset(),
        "named": EntrepotDataset(name="n", run_id="own"),
    }
    run_catalog = DataCatalog(given)
    join_run(given, run_catalog, "run-1")
    descriptions = [description(run_catalog[name]) for name in given]
    assert [(each["name"], each["session"]) for each in descriptions] == [
        ("plain", "kedro/run-1"),
        ("form", "kedro/run-1"),
        ("n", "kedro/own"),
    ]
    join_run(given, run_catalog, "run-2")
    assert description(run_catalog["plain"])["session"] == "kedro/run-1"


def test_in_python_a_name_is_needed() -> None:
    unnamed = EntrepotDataset()
    unnamed.release()  # nothing is stored
    assert description(unnamed)["name"] is None
    for use in (unnamed.load, unnamed.exists, lambda: unnamed.save(1)):
        with pytest.raises(DatasetError, match="needs a name: pass") as caught:
            use()
        assert isinstance(caught.value.__cause__, InvalidArgument)
    with pytest.raises(InvalidArgument, match="must not be empty"):
        EntrepotDataset(name="")
    assert description(EntrepotDataset(name="x"))["session"] == description(EntrepotDataset(name="y"))["session"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"copy": "maybe"}, "'maybe'"),
        ({"session_ttl": "never"}, "'never'"),
        ({"session_ttl": 0}, "at least one second"),
        ({"locality_set": {"reading": "random"}}, "must have a name"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        EntrepotDataset(name="x", **arguments)


def test_versioned_has_no_session() -> None:
    config = ENTRY | {"name": "x", "versioned": True}
    assert description(AbstractDataset.from_config("x", config, save_version="v1"))["session"] == ""
    with pytest.raises(DatasetError, match="versions outlive runs"):
        AbstractDataset.from_config("x", config | {"session": "mine"}, save_version="v1")


def test_scope_is_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "spaceflights"
    (project / "deep").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[tool.kedro]\npackage_name = "x"\nproject_name = "x"\n')
    monkeypatch.chdir(project)
    at_top = description(EntrepotDataset(name="x"))["scope"]
    monkeypatch.chdir(project / "deep")
    assert description(EntrepotDataset(name="x"))["scope"] == at_top
    assert at_top.startswith("kedro-spaceflights-")
    monkeypatch.setenv("ENTREPOT_SCOPE", "shared")
    assert description(EntrepotDataset(name="x"))["scope"] == "shared"
    assert description(EntrepotDataset(name="x", scope="mine"))["scope"] == "mine"
