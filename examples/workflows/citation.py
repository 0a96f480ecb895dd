"""Citation graph analysis: who is cited by the most cited, and what a paper's field is, judging by what it cites.

    papers, citations -> graph -> rank 1 -> rank 2 -> rank 3 -> aggregate -> classify -> answer

PageRank hands a slice of the ranks from each process to each other one in every iteration; aggregation reads the
features of all papers, everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from examples.workflows.pipeline import Answer, Array, Part, Stage, Value, Workflow, column, each, ridge

PAPERS = 12_000  # of a part, at scale 1
DEGREE = 12
FEATURES = 64
FIELDS = 8
ITERATIONS = 3
DAMPING = 0.85


def _papers(part: Part) -> int:
    return max(64, int(PAPERS * part.scale))


def extract(part: Part, _inputs: Mapping[str, Any]) -> dict[str, Value]:
    """Papers with features that depend on their field, and citations: the more, the lower a paper's number."""
    papers, random = _papers(part), part.random(1)
    first, every = part.index * papers, papers * part.count
    field = random.integers(0, FIELDS, papers)
    centers = np.random.default_rng(2).normal(size=(FIELDS, FEATURES)).astype(np.float32)
    features = centers[field] + 3 * random.standard_normal((papers, FEATURES), dtype=np.float32)
    source = first + random.integers(0, papers, papers * DEGREE)
    target = (random.random(papers * DEGREE) ** 2 * every).astype(np.int64)
    return {
        f"papers.{part.index}": pa.table({"id": first + np.arange(papers), "field": field}),
        f"features.{part.index}": features,
        f"citations.{part.index}": pa.table({"source": source, "target": target}),
    }


def graph(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """The citations of a part's papers as sparse rows."""
    first, papers = part.index * _papers(part), _papers(part)
    citations = inputs[f"citations.{part.index}"]
    source, target = column(citations, "source"), column(citations, "target")
    kept = source != target
    source, target = source[kept] - first, target[kept]
    order = np.argsort(source, kind="stable")
    starts = np.zeros(papers + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=papers), out=starts[1:])
    return {f"starts.{part.index}": starts, f"targets.{part.index}": target[order]}


def _rank_of(part: Part, inputs: Mapping[str, Any], iteration: int) -> Array:
    papers = _papers(part)
    if iteration == 0:
        return np.full(papers, 1.0 / (papers * part.count))
    received = np.zeros(papers)
    for index in range(part.count):
        received += inputs[f"slice{iteration}.{index}.{part.index}"]
    ranks: Array = (1 - DAMPING) / (papers * part.count) + DAMPING * received
    return ranks


def rank(iteration: int) -> Callable[[Part, Mapping[str, Any]], dict[str, Value]]:
    """One iteration of PageRank."""

    def compute(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
        papers = _papers(part)
        starts, targets = inputs[f"starts.{part.index}"], inputs[f"targets.{part.index}"]
        counts = np.diff(starts)
        given = np.repeat(_rank_of(part, inputs, iteration - 1) / np.maximum(counts, 1), counts)
        received = np.bincount(targets, weights=given, minlength=papers * part.count)
        return {
            f"slice{iteration}.{part.index}.{index}": received[index * papers : (index + 1) * papers]
            for index in range(part.count)
        }

    return compute


def aggregate(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """For each paper, the mean of the features of those that it cites."""
    papers = _papers(part)
    starts, targets = inputs[f"starts.{part.index}"], inputs[f"targets.{part.index}"]
    owner = targets // papers
    source = np.repeat(np.arange(papers), np.diff(starts))
    total = np.zeros((papers, FEATURES), np.float32)
    for index in range(part.count):
        mine = owner == index
        np.add.at(total, source[mine], inputs[f"features.{index}"][targets[mine] - index * papers])
    means = total / np.maximum(np.diff(starts), 1)[:, None].astype(np.float32)
    return {f"aggregated.{part.index}": means, f"rank.{part.index}": _rank_of(part, inputs, ITERATIONS)}


def classify(part: Part, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """What a part contributes to a linear model of the field."""
    field = column(inputs[f"papers.{part.index}"], "field")
    ranks = inputs[f"rank.{part.index}"]
    features = np.hstack(
        [
            np.ones((len(field), 1)),
            inputs[f"features.{part.index}"],
            inputs[f"aggregated.{part.index}"],
            np.log(ranks)[:, None],
        ]
    )
    moments = features.T @ np.hstack([features, np.eye(FIELDS)[field]])
    return {f"moments.{part.index}": moments, f"top.{part.index}": np.sort(ranks)[-10:]}


def answer(part: Part, inputs: Mapping[str, Any]) -> Answer:
    """The model, and the highest ranks."""
    moments = np.sum([inputs[name] for name in each("moments", part.count)], axis=0)
    weights = ridge(moments, FIELDS)
    top = np.sort(np.concatenate([inputs[name] for name in each("top", part.count)]))[-10:]
    return Answer(papers=int(moments[0, 0]), weights=float(np.abs(weights).sum()), top=float(top.sum()))


def _received(iteration: int, index: int, count: int) -> list[str]:
    return [f"slice{iteration}.{other}.{index}" for other in range(count)] if iteration else []


def _rank_stage(iteration: int) -> Stage:
    return Stage(
        f"rank{iteration}",
        rank(iteration),
        lambda index, count: [f"starts.{index}", f"targets.{index}", *_received(iteration - 1, index, count)],
    )


WORKFLOW = Workflow(
    "citation",
    "citation graph analysis",
    (
        Stage("extract", extract),
        Stage("graph", graph, lambda index, count: [f"citations.{index}"]),
        *(_rank_stage(iteration) for iteration in range(1, ITERATIONS + 1)),
        Stage(
            "aggregate",
            aggregate,
            lambda index, count: [
                f"starts.{index}",
                f"targets.{index}",
                *_received(ITERATIONS, index, count),
                *each("features", count),
            ],
        ),
        Stage(
            "classify",
            classify,
            lambda index, count: [f"{name}.{index}" for name in ("papers", "features", "aggregated", "rank")],
        ),
        Stage("answer", answer, lambda index, count: [*each("moments", count), *each("top", count)], single=True),
    ),
)
