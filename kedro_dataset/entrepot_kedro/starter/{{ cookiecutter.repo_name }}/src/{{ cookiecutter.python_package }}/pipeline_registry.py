"""The pipelines of the project."""

from __future__ import annotations

from kedro.pipeline import Pipeline, node, pipeline

from .nodes import add_tax, make_orders, report, revenue


def register_pipelines() -> dict[str, Pipeline]:
    """Return the pipelines by name."""
    shop = pipeline(
        [
            node(make_orders, "params:rows", "orders", name="make_orders"),
            node(add_tax, "orders", "taxed_orders", name="add_tax"),
            node(revenue, "taxed_orders", "customers", name="revenue"),
            node(report, ["orders", "customers"], "report", name="report"),
        ]
    )
    return {"__default__": shop}
