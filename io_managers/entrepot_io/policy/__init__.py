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

from entrepot.lazy import lazy_names

if TYPE_CHECKING:
    from entrepot_io.policy.lineage import Lineage as Lineage
    from entrepot_io.policy.lineage import ObjectRef as ObjectRef
    from entrepot_io.policy.model import Policy as Policy
    from entrepot_io.policy.planning import Graph as Graph
    from entrepot_io.policy.planning import NoPlan as NoPlan
    from entrepot_io.policy.planning import Plan as Plan
    from entrepot_io.policy.planning import RerunNeeded as RerunNeeded
    from entrepot_io.policy.problems import PolicyError as PolicyError
    from entrepot_io.policy.reading import find_policy as find_policy
    from entrepot_io.policy.reading import load_policy as load_policy
    from entrepot_io.policy.reading import parse_policy as parse_policy
    from entrepot_io.policy.rerunning import Rerunner as Rerunner
    from entrepot_io.policy.rerunning import Retry as Retry
    from entrepot_io.policy.runtime import PolicyRuntime as PolicyRuntime
    from entrepot_io.policy.runtime import TaskRun as TaskRun
    from entrepot_io.policy.subject import Subject as Subject
    from entrepot_io.policy.subject import Task as Task

_HOME = {
    "Graph": "planning",
    "Lineage": "lineage",
    "NoPlan": "planning",
    "ObjectRef": "lineage",
    "Plan": "planning",
    "Policy": "model",
    "PolicyError": "problems",
    "PolicyRuntime": "runtime",
    "RerunNeeded": "planning",
    "Rerunner": "rerunning",
    "Retry": "rerunning",
    "Subject": "subject",
    "Task": "subject",
    "TaskRun": "runtime",
    "find_policy": "reading",
    "load_policy": "reading",
    "parse_policy": "reading",
}
__all__ = [
    "Graph",
    "Lineage",
    "NoPlan",
    "ObjectRef",
    "Plan",
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

__getattr__, __dir__ = lazy_names(__name__, _HOME)
