"""Fraud detection: transactions are brought together by card, and judged by what is known of cards and merchants.

    transactions -> clean -> shuffle -> profile -> propagate -> score -> report

The shuffle hands a table from each process to each other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from examples.workflows.pipeline import Answer, Part, Stage, Value, Workflow, column, each

TRANSACTIONS = 40_000  # of a part, at scale 1
CARDS = 20_000  # at scale 1
MERCHANTS = 5_000
_FRAUDULENT = 0.002


def _cards(part: Part) -> int:
    return max(64, int(CARDS * part.scale))


def transactions(part: Part, _inputs: Mapping[str, Any]) -> dict[str, Value]:
    """A part's transactions; some merchants have more fraud than others."""
    count, random = max(64, int(TRANSACTIONS * part.scale)), part.random(4)
    merchant = (random.random(count) ** 2 * MERCHANTS).astype(np.int32)
    reported = random.random(count) < _FRAUDULENT * (1 + 20 * (merchant % 50 == 0))
    table = {
        "id": part.index * count + np.arange(count),
        "card": random.integers(0, _cards(part), count),
        "merchant": merchant,
        "amount": random.lognormal(3, 1, count) * np.where(reported, 5, 1),
        "time": random.uniform(0, 30 * 86_400, count),
        "country": random.integers(0, 40, count, np.int32),
        "device": random.integers(0, 1 << 40, count),
        "address": random.integers(0, 1 << 32, count),
        "known": reported.astype(np.int8),
    }
    return {f"transactions.{part.index}": pa.table(table)}


def clean(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """What is worth looking at, with derived columns."""
    table = inputs[f"transactions.{part.index}"]
    amount = column(table, "amount")
    kept = np.flatnonzero((amount > 1) & (column(table, "country") < 39))
    columns = {name: column(table, name)[kept] for name in table.column_names}
    columns["logarithm"] = np.log(columns["amount"])
    columns["hour"] = columns["time"] % 86_400 / 3600
    columns["night"] = ((columns["hour"] < 6) | (columns["hour"] > 22)).astype(np.float64)
    return {f"cleaned.{part.index}": pa.table(columns)}


def shuffle(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """The transactions by card."""
    table = inputs[f"cleaned.{part.index}"]
    owner = column(table, "card") % part.count
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=part.count))
    columns = {name: column(table, name)[order] for name in table.column_names}
    return {
        f"by_card.{part.index}.{index}": pa.table({name: values[end - size : end] for name, values in columns.items()})
        for index, (end, size) in enumerate(zip(ends, np.diff(ends, prepend=0), strict=True))
    }


def profile(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """How a transaction differs from the others of its card."""
    table = pa.concat_tables([inputs[f"by_card.{index}.{part.index}"] for index in range(part.count)])
    columns = {name: column(table, name) for name in table.column_names}
    card, logarithm = columns["card"], columns["logarithm"]
    count = np.maximum(np.bincount(card, minlength=_cards(part)), 1)
    mean = np.bincount(card, logarithm, _cards(part)) / count
    square = np.bincount(card, logarithm**2, _cards(part)) / count
    columns["count"] = count[card].astype(np.float64)
    columns["deviation"] = (logarithm - mean[card]) / np.sqrt(np.maximum(square - mean**2, 1e-3))[card]
    return {f"enriched.{part.index}": pa.table(columns)}


def propagate(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """What a part knows of the merchants."""
    table = inputs[f"enriched.{part.index}"]
    merchant = column(table, "merchant")
    reported = np.bincount(merchant, column(table, "known"), MERCHANTS)
    return {f"risk.{part.index}": np.stack([reported, np.bincount(merchant, minlength=MERCHANTS)])}


def score(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """A score for each transaction."""
    table = inputs[f"enriched.{part.index}"]
    reported, count = np.sum([inputs[name] for name in each("risk", part.count)], axis=0)
    risk = (reported + 1) / (count + 100)
    scores = np.log(risk)[column(table, "merchant")] + column(table, "deviation") + 0.5 * column(table, "night")
    kept = table.select(["id", "card", "merchant", "amount", "known"])
    return {f"scored.{part.index}": kept.append_column("score", pa.array(scores))}


def report(part: Part, inputs: Mapping[str, Any]) -> Answer:
    """How many of the known cases are among the hundredth with the highest scores."""
    tables = [inputs[name] for name in each("scored", part.count)]
    scores = np.concatenate([column(table, "score") for table in tables])
    reported = np.concatenate([column(table, "known") for table in tables])
    amount = np.concatenate([column(table, "amount") for table in tables])
    limit = np.quantile(scores, 0.99)
    return Answer(
        transactions=len(scores),
        found=int(reported[scores >= limit].sum()),
        known=int(reported.sum()),
        suspicious=float(amount[scores >= limit].sum()),
    )


WORKFLOW = Workflow(
    "fraud",
    "fraud detection",
    (
        Stage("transactions", transactions),
        Stage("clean", clean, lambda index, count: [f"transactions.{index}"]),
        Stage("shuffle", shuffle, lambda index, count: [f"cleaned.{index}"]),
        Stage("profile", profile, lambda index, count: [f"by_card.{other}.{index}" for other in range(count)]),
        Stage("propagate", propagate, lambda index, count: [f"enriched.{index}"]),
        Stage("score", score, lambda index, count: [f"enriched.{index}", *each("risk", count)]),
        Stage("report", report, lambda index, count: each("scored", count), single=True),
    ),
)
