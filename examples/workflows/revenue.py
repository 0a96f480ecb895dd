"""Revenue prediction: sales are joined with shops and items, and several models predict them.

    sales, shops, items -> join -> features -> train -> predict -> report

Each process trains on its own part and that of its neighbour; the report reads all predictions in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from examples.workflows.pipeline import Answer, Part, Stage, Value, Workflow, column, each, ridge

SALES = 40_000  # of a part, at scale 1
SHOPS = 1_000
ITEMS = 5_000
REGIONS = 8
_DAYS = 730


def sales(part: Part, _inputs: Mapping[str, Any]) -> dict[str, Value]:
    """A part's sales; the first one also has the shops and items."""
    count, random = max(64, int(SALES * part.scale)), part.random(3)
    outputs: dict[str, Value] = {
        f"sales.{part.index}": pa.table(
            {
                "shop": random.integers(0, SHOPS, count, np.int32),
                "item": random.integers(0, ITEMS, count, np.int32),
                "day": random.integers(0, _DAYS, count, np.int32),
                "units": random.poisson(3, count).astype(np.int32),
                "discount": np.where(random.random(count) < 0.2, 0.2, 0.0),
                "visitors": random.gamma(3, 100, count),
            }
        )
    }
    if part.index == 0:
        outputs["shops"] = pa.table(
            {
                "size": random.gamma(4, 50, SHOPS),
                "income": random.normal(40_000, 8_000, SHOPS),
                "region": random.integers(0, REGIONS, SHOPS, np.int32),
            }
        )
        outputs["items"] = pa.table(
            {
                "price": random.gamma(2, 10, ITEMS),
                "cost": random.gamma(2, 6, ITEMS),
                "category": random.integers(0, 20, ITEMS, np.int32),
            }
        )
    return outputs


def join(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """Every sale with its shop and item."""
    table = inputs[f"sales.{part.index}"]
    shop, item = column(table, "shop"), column(table, "item")
    columns = {name: column(table, name) for name in table.column_names}
    columns |= {name: column(inputs["shops"], name)[shop] for name in ("size", "income", "region")}
    columns |= {name: column(inputs["items"], name)[item] for name in ("price", "cost", "category")}
    columns["paid"] = columns["price"] * (1 - columns["discount"])
    columns["revenue"] = columns["units"] * columns["paid"] * (1 + 0.1 * columns["visitors"] / columns["size"])
    columns["margin"] = columns["revenue"] - columns["units"] * columns["cost"]
    return {f"joined.{part.index}": pa.table(columns)}


def features(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """Numbers from which the revenue is predicted, with those of the shop's sales on average."""
    table = inputs[f"joined.{part.index}"]
    day, shop = column(table, "day"), column(table, "shop")
    revenue = column(table, "revenue")
    mean = np.bincount(shop, revenue, SHOPS) / np.maximum(np.bincount(shop, minlength=SHOPS), 1)
    made = [np.ones(len(day)), np.sin(day * (2 * np.pi / 365)), np.cos(day * (2 * np.pi / 365)), day % 7 >= 5]
    for name in ("units", "discount", "visitors", "size", "income", "price", "cost", "paid", "category"):
        made.append(column(table, name).astype(np.float64))
    made += [made[4] * made[9], made[6] / made[7], np.log1p(made[6]), np.log1p(made[8]), mean[shop]]
    return {f"features.{part.index}": np.column_stack(made), f"target.{part.index}": revenue}


def train(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """A linear model of two parts."""
    moments = 0
    for index in (part.index, (part.index + 1) % part.count):
        columns = inputs[f"features.{index}"]
        moments = moments + columns.T @ np.column_stack([columns, inputs[f"target.{index}"]])
    return {f"model.{part.index}": ridge(np.asarray(moments), 1)}


def predict(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """The revenue that all models together predict."""
    table = inputs[f"joined.{part.index}"]
    weights = np.mean([inputs[name] for name in each("model", part.count)], axis=0)
    predicted = inputs[f"features.{part.index}"] @ weights[:, 0]
    kept = table.select(["shop", "item", "day", "region", "revenue"])
    return {f"predicted.{part.index}": kept.append_column("predicted", pa.array(predicted))}


def report(part: Part, inputs: Mapping[str, Any]) -> Answer:
    """Revenue and prediction by region, and the error."""
    regions = np.zeros((2, REGIONS))
    error, rows = 0.0, 0
    for name in each("predicted", part.count):
        table = inputs[name]
        actual, predicted, region = (column(table, key) for key in ("revenue", "predicted", "region"))
        regions[0] += np.bincount(region, actual, REGIONS)
        regions[1] += np.bincount(region, predicted, REGIONS)
        error, rows = error + float(np.abs(actual - predicted).sum()), rows + len(table)
    return Answer(sales=rows, error=error / rows, actual=regions[0].tolist(), predicted=regions[1].tolist())


WORKFLOW = Workflow(
    "revenue",
    "revenue prediction",
    (
        Stage("sales", sales),
        Stage("join", join, lambda index, count: [f"sales.{index}", "shops", "items"]),
        Stage("features", features, lambda index, count: [f"joined.{index}"]),
        Stage(
            "train",
            train,
            lambda index, count: [
                f"{name}.{other}" for name in ("features", "target") for other in sorted({index, (index + 1) % count})
            ],
        ),
        Stage(
            "predict",
            predict,
            lambda index, count: [f"features.{index}", f"joined.{index}", *each("model", count)],
        ),
        Stage("report", report, lambda index, count: each("predicted", count), single=True),
    ),
)
