"""Failover and checkpoints according to a YAML policy, for all orchestrators.

    version: 1
    checkpoint:
      target: s3://bucket/checkpoints/{pipeline}/{run}
      rules:
        - {match: "train_*", mode: async, keep: 2}
    failover:
      - {on: object_lost, do: [reload_checkpoint, rerun_upstream, fail]}

An orchestrator's plugin creates one :class:`PolicyRuntime` per process and one :class:`TaskRun` per task, and reads and
writes through it; see ``docs/policy.md``. Importing this package imports neither PyYAML nor fsspec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy_imports import lazy_names

if TYPE_CHECKING:
    from entrepot_policy.recovery.planning import Graph as Graph
    from entrepot_policy.recovery.planning import Plan as Plan
    from entrepot_policy.recovery.planning import PlanningError as PlanningError
    from entrepot_policy.recovery.planning import RerunNeeded as RerunNeeded
    from entrepot_policy.recovery.rerun_api import Rerunner as Rerunner
    from entrepot_policy.recovery.rerun_api import Retry as Retry
    from entrepot_policy.rules.loader import find_policy as find_policy
    from entrepot_policy.rules.loader import load_policy as load_policy
    from entrepot_policy.rules.loader import parse_policy as parse_policy
    from entrepot_policy.rules.match_target import Subject as Subject
    from entrepot_policy.rules.match_target import Task as Task
    from entrepot_policy.rules.model import Policy as Policy
    from entrepot_policy.runtime import PolicyRuntime as PolicyRuntime
    from entrepot_policy.runtime import TaskRun as TaskRun
    from entrepot_policy.schema.diagnostics import PolicyError as PolicyError
    from entrepot_policy.state.lineage import Lineage as Lineage
    from entrepot_policy.state.lineage import ObjectRef as ObjectRef

_MODULES = {
    "Graph": "entrepot_policy.recovery.planning",
    "Lineage": "entrepot_policy.state.lineage",
    "ObjectRef": "entrepot_policy.state.lineage",
    "Plan": "entrepot_policy.recovery.planning",
    "PlanningError": "entrepot_policy.recovery.planning",
    "Policy": "entrepot_policy.rules.model",
    "PolicyError": "entrepot_policy.schema.diagnostics",
    "PolicyRuntime": "entrepot_policy.runtime",
    "RerunNeeded": "entrepot_policy.recovery.planning",
    "Rerunner": "entrepot_policy.recovery.rerun_api",
    "Retry": "entrepot_policy.recovery.rerun_api",
    "Subject": "entrepot_policy.rules.match_target",
    "Task": "entrepot_policy.rules.match_target",
    "TaskRun": "entrepot_policy.runtime",
    "find_policy": "entrepot_policy.rules.loader",
    "load_policy": "entrepot_policy.rules.loader",
    "parse_policy": "entrepot_policy.rules.loader",
}
__all__ = [
    "Graph",
    "Lineage",
    "ObjectRef",
    "Plan",
    "PlanningError",
    "Policy",
    "PolicyError",
    "PolicyRuntime",
    "RerunNeeded",
    "Rerunner",
    "Retry",
    "Subject",
    "Task",
    "TaskRun",
    "find_policy",
    "load_policy",
    "parse_policy",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
