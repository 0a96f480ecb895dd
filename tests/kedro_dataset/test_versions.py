"""Versions: which one is loaded, and a warning where that is not the one saved."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from kedro.io import DataCatalog

pytestmark = pytest.mark.usefixtures("in_scope_tests")


def dataset(save_version: str, load_version: str | None = None) -> Any:
    return DataCatalog.from_config(
        {"model": {"type": "entrepot_kedro.EntrepotDataset", "versioned": True}},
        save_version=save_version,
        load_versions={} if load_version is None else {"model": load_version},
    )["model"]


def test_a_pinned_load_version_that_is_not_saved_warns() -> None:
    dataset("2026-01-01").save([1])
    message = "save version '2026-01-02' of dataset 'model' is not its load version '2026-01-01'"
    with pytest.warns(UserWarning, match=message):
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
