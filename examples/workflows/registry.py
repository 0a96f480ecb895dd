"""All workflows, by name."""

from __future__ import annotations

from examples.workflows import citation, fraud, revenue
from examples.workflows.pipeline import Workflow

WORKFLOWS: dict[str, Workflow] = {module.WORKFLOW.name: module.WORKFLOW for module in (citation, revenue, fraud)}
