"""Runs pipelines in this process with the plugin's hooks, as ``kedro run`` does."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

from entrepot_kedro.catalog_names import named_entries
from entrepot_kedro.hooks import EntrepotHooks
from kedro.config import OmegaConfigLoader
from kedro.io import DataCatalog, SharedMemoryDataCatalog
from kedro.pipeline import Pipeline
from kedro.runner import AbstractRunner, ParallelRunner, SequentialRunner

_numbers = itertools.count()


class Context:
    """What the hooks need of Kedro's context.

    Args:
        conf_source: folder with the configuration's folders ``base`` and ``local``.
    """

    def __init__(self, conf_source: str) -> None:
        self.project_path = Path(conf_source).parent
        self.config_loader = OmegaConfigLoader(conf_source, base_env="base", default_run_env="local")


def run(
    pipeline: Pipeline,
    config: dict[str, Any] | None = None,
    *,
    context: Any = None,
    runner: AbstractRunner | None = None,
    only_missing_outputs: bool = False,
    run_id: str | None = None,
    **params: Any,
) -> tuple[dict[str, Any], DataCatalog]:
    """Run a pipeline; return its outputs and its catalog.

    Args:
        pipeline: the pipeline.
        config: of the catalog.
        context: a context with a configuration; None: the allow-list is not read.
        runner: the runner.
        only_missing_outputs: as for ``kedro run``.
        run_id: its ID; default: a new one.
        params: further parameters of the run.
    """
    from kedro.framework.hooks.manager import _create_hook_manager
    from pluggy import PluginManager

    manager: PluginManager = _create_hook_manager()
    hooks = EntrepotHooks()
    manager.register(hooks)
    hooks.session.manager = manager  # as if a context had been created
    runner = runner or SequentialRunner()
    run_id = run_id or f"run-{os.getpid()}-{next(_numbers)}"
    catalog_class = SharedMemoryDataCatalog if isinstance(runner, ParallelRunner) else DataCatalog
    catalog = catalog_class.from_config(named_entries(config or {}), save_version=run_id)  # as the hook has it
    if context is not None:
        context._hook_manager = manager
        manager.hook.after_context_created(context=context)
    run_params = {"run_id": run_id, "only_missing_outputs": only_missing_outputs, **params}
    arguments = {"run_params": run_params, "pipeline": pipeline, "catalog": catalog}
    manager.hook.before_pipeline_run(**arguments)
    try:
        outputs = runner.run(pipeline, catalog, manager, run_id=run_id, only_missing_outputs=only_missing_outputs)
    except Exception as error:
        manager.hook.on_pipeline_error(error=error, **arguments)
        raise
    manager.hook.after_pipeline_run(run_result=outputs, **arguments)
    return outputs, catalog
