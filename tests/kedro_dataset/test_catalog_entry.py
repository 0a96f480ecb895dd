"""A dataset learns its name from the catalog that creates it, and never guesses one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_kedro import EntrepotDataset
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


def test_one_line_pattern() -> None:
    catalog = DataCatalog.from_config({"{name}": ENTRY}, save_version="run-1")
    for name in ("features", "namespace.model", "train/x", "données"):
        assert description(catalog.get(name))["name"] == name


def test_plain_entry_and_other_patterns() -> None:
    catalog = DataCatalog.from_config({"features": ENTRY, "{space}.int_{name}": ENTRY}, save_version="run-1")
    assert description(catalog["features"])["name"] == "features"
    assert description(catalog["a.int_b"])["name"] == "a.int_b"


def test_explicit_name_wins() -> None:
    catalog = DataCatalog.from_config({"{name}": ENTRY | {"name": "{name}_kept"}}, save_version="run-1")
    assert description(catalog["features"])["name"] == "features_kept"


def test_session_is_the_run_of_the_catalog() -> None:
    first, second, same = (DataCatalog.from_config({"{name}": ENTRY}, save_version=run)["x"] for run in ("a", "b", "a"))
    assert description(first)["session"] == "kedro/a"
    assert description(second)["session"] == "kedro/b"
    assert description(same)["session"] == "kedro/a"


def test_session_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    config: dict[str, Any] = {"kept": ENTRY | {"session": ""}, "named": ENTRY | {"session": "mine"}, "{name}": ENTRY}
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "etl")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "manual__1")
    catalog = DataCatalog.from_config(config, save_version="a")
    sessions = {name: description(catalog[name])["session"] for name in ("kept", "named", "x")}
    assert sessions == {"kept": "", "named": "mine", "x": "kedro/airflow/etl/manual__1"}
    monkeypatch.setenv("ENTREPOT_SESSION", "resumed")
    assert description(DataCatalog.from_config(config)["x"])["session"] == "resumed"


def test_persistent_entries_are_not_ephemeral() -> None:
    catalog = DataCatalog.from_config({"kept": ENTRY | {"session": ""}, "{name}": ENTRY}, save_version="a")
    assert catalog["kept"]._EPHEMERAL is False
    assert catalog["x"]._EPHEMERAL is True


def test_survives_pickling_and_config() -> None:
    catalog = DataCatalog.from_config({"{name}": ENTRY | {"copy": "always"}}, save_version="a")
    dataset = catalog["x"]
    assert description(pickle.loads(pickle.dumps(dataset))) == description(dataset)
    restored_catalog = DataCatalog.from_config(catalog.to_config()[0], save_version="a")
    assert description(restored_catalog["x"]) == description(dataset)


def test_inside_a_cached_dataset() -> None:
    catalog = DataCatalog.from_config({"{name}": {"type": "CachedDataset", "dataset": ENTRY}}, save_version="a")
    outer = catalog["x"]
    assert isinstance(outer, CachedDataset)
    assert description(outer._dataset)["name"] == "x"


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


class Owner(AbstractDataset[Any, Any]):
    """Creates a dataset directly in its constructor."""

    def __init__(self) -> None:
        self.part = EntrepotDataset()

    def load(self) -> Any:
        return self.part.load()

    def save(self, data: Any) -> None:
        self.part.save(data)

    def _describe(self) -> dict[str, Any]:
        return {}


def test_other_wrappers_get_no_guessed_name() -> None:
    """Otherwise two values with the same name would overwrite each other."""
    with pytest.raises(DatasetError, match="needs a name: pass"):
        AbstractDataset.from_config("x", {"type": Pair, "inner": ENTRY})
    with pytest.raises(DatasetError, match="needs a name: pass"):
        AbstractDataset.from_config("x", {"type": Owner})
    with pytest.raises(DatasetError, match="needs a name: pass"):
        CachedDataset(dataset=dict(ENTRY))


class Subclass(EntrepotDataset):
    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)


def test_subclasses_learn_their_name() -> None:
    dataset = AbstractDataset.from_config("x", {"type": Subclass})
    assert description(dataset)["name"] == "x"


def test_in_python_a_name_is_needed() -> None:
    with pytest.raises(InvalidArgument, match="needs a name: pass"):
        EntrepotDataset()
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
    config = ENTRY | {"versioned": True}
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
