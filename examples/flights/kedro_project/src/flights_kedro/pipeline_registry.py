"""The pipeline: one node per function."""

from __future__ import annotations

from kedro.pipeline import Pipeline, node, pipeline

from examples.flights import job


def register_pipelines() -> dict[str, Pipeline]:
    """The only pipeline, as the default."""
    flights = pipeline(
        [
            node(job.load, ["params:scale", "params:rows"], "tables", name="load"),
            node(job.join, "tables", "joined", name="join"),
            node(job.features, "joined", "featured", name="features"),
            node(job.train, "featured", "model", name="train"),
            node(job.score, ["model", "featured"], "scored", name="score"),
            node(job.report, ["joined", "scored"], "report", name="report"),
        ]
    )
    return {"__default__": flights}
