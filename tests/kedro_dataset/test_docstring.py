"""The examples in the dataset's docstring run."""

from __future__ import annotations

import inspect
import re

import pandas as pd
import polars as pl
import pytest
import yaml
from entrepot_kedro import EntrepotDataset, catalog_config
from kedro.io import DataCatalog

pytestmark = pytest.mark.usefixtures("in_scope_tests")


def example(language: str) -> str:
    text = inspect.getdoc(EntrepotDataset) or ""
    (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return str(block)


def test_the_python_example_runs() -> None:
    exec(compile(example("python"), "docstring", "exec"), {})


def test_the_yaml_example_is_a_catalog() -> None:
    catalog = DataCatalog.from_config(catalog_config(yaml.safe_load(example("yaml"))), save_version="run-1")
    frame = pd.DataFrame({"customer": ["a"], "price": [1.5], "other": [1]})
    for name in ("features", "model", "shop.orders"):
        catalog[name].save(frame)
    assert catalog["features"].load().equals(pl.DataFrame({"customer": ["a"], "price": [1.5]}))
    assert catalog["model"].load().equals(frame)
    orders = catalog["shop.orders"].load()
    assert orders.equals(frame)
    with pytest.raises(ValueError, match="read-only"):
        orders.loc[0, "price"] = 2.0
