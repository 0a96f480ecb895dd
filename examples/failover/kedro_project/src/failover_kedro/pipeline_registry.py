"""The pipeline: one node per function."""

from __future__ import annotations

from kedro.pipeline import Pipeline, node, pipeline

from examples.failover import tasks


def register_pipelines() -> dict[str, Pipeline]:
    """The only pipeline, as the default."""
    flights = pipeline(
        [
            node(tasks.load, ["params:scale", "params:rows"], "tables", name="load"),
            node(tasks.join, "tables", "joined", name="join"),
            node(tasks.features, "joined", "featured", name="features"),
            node(tasks.train, "featured", "model", name="train"),
            node(tasks.score, ["model", "featured"], "scored", name="score"),
            node(tasks.report, ["joined", "scored"], "report", name="report"),
        ]
    )
    return {"__default__": flights}
