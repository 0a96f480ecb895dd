"""Versions, as ``AbstractVersionedDataset`` defines them: which is loaded, which saved, and when Kedro warns."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
from entrepot.errors import ObjectNotFound
from entrepot_kedro import EntrepotDataset, catalog_config
from kedro.io import AbstractVersionedDataset, DataCatalog, DatasetError, Version
from kedro.io.core import VersionNotFoundError

pytestmark = pytest.mark.usefixtures("in_scope_tests")


def catalog(save_version: str, load_version: str | None = None) -> DataCatalog:
    return DataCatalog.from_config(
        catalog_config({"model": {"type": "entrepot_kedro.EntrepotDataset", "versioned": True}}),
        save_version=save_version,
        load_versions={} if load_version is None else {"model": load_version},
    )


def dataset(save_version: str, load_version: str | None = None) -> Any:
    return catalog(save_version, load_version)["model"]


def test_a_pinned_load_version_that_is_not_saved_warns() -> None:
    dataset("2026-01-01").save([1])
    with pytest.warns(UserWarning, match="Save version '2026-01-02' did not match load version '2026-01-01'"):
        dataset("2026-01-02", "2026-01-01").save([2])
    assert dataset("2026-01-03", "2026-01-01").load() == [1]
    assert dataset("2026-01-03").load() == [2]


@pytest.mark.parametrize("load_version", [None, "2026-01-01"])
def test_matching_versions_do_not_warn(load_version: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        saved = dataset("2026-01-01", load_version)
        saved.save([1])
        assert saved.load() == [1]


def test_a_load_without_any_version_is_kedros_own_error() -> None:
    with pytest.raises(VersionNotFoundError, match="no version of dataset 'model' has been saved") as caught:
        dataset("2026-01-01").load()
    assert isinstance(caught.value.__cause__, ObjectNotFound)
    dataset("2026-01-01").save([1])
    with pytest.raises(DatasetError, match="has no version '2025-01-01'; the store has 2026-01-01") as pinned:
        dataset("2026-01-02", "2025-01-01").load()
    assert not isinstance(pinned.value, VersionNotFoundError)


def test_the_latest_version_is_the_greatest_as_text() -> None:
    dataset("2026-01-02").save([2])
    message = "save version '2026-01-01' of dataset 'model' is not its latest version, '2026-01-02'"
    with pytest.warns(UserWarning, match=message):
        dataset("2026-01-01").save([1])
    later = dataset("2026-01-03")
    assert later.resolve_load_version() == "2026-01-02"
    assert later.load() == [2]
    assert dataset("2026-01-01").load() == [1], "a run loads what it has saved itself"
    assert later.list_versions(full_path=False) == ["2026-01-02", "2026-01-01"]
    assert later.list_versions() == ["dataset:model@2026-01-02", "dataset:model@2026-01-01"]


def test_which_versions_are_resolved() -> None:
    plain: Any = EntrepotDataset(name="model")
    assert isinstance(plain, AbstractVersionedDataset)
    assert (plain.resolve_load_version(), plain.resolve_save_version()) == (None, None)
    first = dataset("2026-01-01")
    assert first.resolve_save_version() == "2026-01-01"
    assert not first.exists()
    for resolve in (first.resolve_load_version, first.list_versions, first.load):
        with pytest.raises(VersionNotFoundError, match="no version of dataset 'model' has been saved"):
            resolve()
    first.save([1])
    assert first.resolve_load_version() == "2026-01-01"
    assert pickle.loads(pickle.dumps(first)).resolve_load_version() == "2026-01-01"
    assert dataset("2026-01-02", "2026-01-01").resolve_load_version() == "2026-01-01"


def test_a_version_is_generated_without_a_catalog() -> None:
    generated: Any = EntrepotDataset(name="model", version=Version(None, None))
    generated.save([1])
    version = generated.resolve_save_version()
    assert generated.resolve_load_version() == version
    assert dataset("0").list_versions(full_path=False) == [version]


def test_the_catalog_loads_the_version_that_is_asked_for() -> None:
    dataset("2026-01-01").save([1])
    dataset("2026-01-02").save([2])
    of_today = catalog("2026-01-03")
    assert of_today.load("model", version="2026-01-01") == [1]
    assert of_today.load("model") == [2]


@pytest.mark.parametrize("name", ["a*[b]?", "a@b", "x" * 300])
def test_names_that_are_patterns_or_too_long(name: str) -> None:
    neighbour: Any = EntrepotDataset(name="axb]z", version=Version(None, "9"))
    neighbour.save([9])
    for version in ("1", "2"):
        saved: Any = EntrepotDataset(name=name, version=Version(None, version))
        saved.save([version])
    assert EntrepotDataset(name=name, version=Version(None, "3")).load() == ["2"]
    assert EntrepotDataset(name=name, version=Version("1", "3")).load() == ["1"]
