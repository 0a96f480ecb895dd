"""Entrepot plugin for Dagster: an IO manager that passes values by object ID, through shared memory.

Definitions(assets=[...], resources={"io_manager": EntrepotIOManager()})

With a policy (ENTREPOT_POLICY, or the IO manager's ``policy``) there are also ``policy_sensors()`` for the definitions,
``policy_retries()`` and ``policy_failure_hook`` for a job, and ``python -m entrepot_dagster``.

Importing this package does not import Dagster, because ``entrepot gc`` asks it about sessions that may not be its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy_imports import lazy_names

from entrepot_dagster.compat.library import register_library

if TYPE_CHECKING:
    from entrepot_dagster.failure_reports import StepFailure as StepFailure
    from entrepot_dagster.failure_reports import store_failure_hook as store_failure_hook
    from entrepot_dagster.failure_reports import store_failure_sensor as store_failure_sensor
    from entrepot_dagster.hooks import policy_failure_hook as policy_failure_hook
    from entrepot_dagster.hooks import policy_retries as policy_retries
    from entrepot_dagster.io_manager import EntrepotIOManager as EntrepotIOManager
    from entrepot_dagster.pipes_values import PipesValues as PipesValues
    from entrepot_dagster.pods.k8s_executor import entrepot_k8s_job_executor as entrepot_k8s_job_executor
    from entrepot_dagster.pods.pod_tags import placement_tags as placement_tags
    from entrepot_dagster.rerun import rerun as rerun_failed
    from entrepot_dagster.resource import EntrepotResource as EntrepotResource
    from entrepot_dagster.sensors import policy_sensors as policy_sensors
    from entrepot_dagster.tiered_io_manager import TieredIOManager as TieredIOManager
    from entrepot_dagster.values.typed_inputs import TypeHandler as TypeHandler

_HOME = {
    "EntrepotIOManager": "io_manager",
    "EntrepotResource": "resource",
    "PipesValues": "pipes_values",
    "StepFailure": "failure_reports",
    "TieredIOManager": "tiered_io_manager",
    "TypeHandler": "entrepot_dagster.values.typed_inputs",
    "entrepot_k8s_job_executor": "entrepot_dagster.pods.k8s_executor",
    "placement_tags": "entrepot_dagster.pods.pod_tags",
    "policy_failure_hook": "hooks",
    "policy_retries": "hooks",
    "policy_sensors": "sensors",
    "rerun_failed": "rerun:rerun",
    "store_failure_hook": "failure_reports",
    "store_failure_sensor": "failure_reports",
}
# Without ``entrepot_k8s_job_executor``, which needs dagster-k8s: ``import *`` and introspection import all of these.
__all__ = [
    "EntrepotIOManager",
    "EntrepotResource",
    "PipesValues",
    "StepFailure",
    "TieredIOManager",
    "TypeHandler",
    "placement_tags",
    "policy_failure_hook",
    "policy_retries",
    "policy_sensors",
    "rerun_failed",
    "store_failure_hook",
    "store_failure_sensor",
]

__version__ = "0.1.0"

register_library("entrepot-dagster", __version__)

__getattr__, _ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
