"""The pipeline: one node per task."""

from __future__ import annotations

from kedro.pipeline import Pipeline, node, pipeline

from benchmarks.table_handoff import tasks


def register_pipelines() -> dict[str, Pipeline]:
    """The only pipeline, as the default."""
    handoff = pipeline(
        [
            node(tasks.make, "params:mib", "made", name="make"),
            node(tasks.replace, "made", "replaced", name="replace"),
            node(tasks.report, "replaced", "report", name="report"),
        ]
    )
    return {"__default__": handoff}
