"""The private names of Kedro that this package uses."""

from __future__ import annotations

from entrepot_io.private_names import PrivateName

PRIVATE_NAMES = (
    PrivateName(
        "kedro.io.core",
        "AbstractDataset._EPHEMERAL",
        "datasets: tells Kedro that a value ends with its run, so that a later run recomputes it",
    ),
    PrivateName("kedro.io.core", "VersionNotFoundError", "versions: raised where a dataset has no version yet"),
    PrivateName("kedro.io.cached_dataset", "CachedDataset._dataset", "datasets: the dataset in a cache"),
    PrivateName("kedro.pipeline.node", "Node.run", "nodes: replaced on one node for one call, so that it is retried"),
    PrivateName(
        "kedro.runner.runner", "AbstractRunner._get_executor", "runners: a process for each running node, not one pool"
    ),
    PrivateName("kedro.runner.runner", "AbstractRunner._logger", "runners: progress is logged as that of Kedro's own"),
    PrivateName(
        "kedro.runner.runner",
        "AbstractRunner._release_datasets",
        "runners: a run within a run leaves the outer run's datasets alone",
    ),
    PrivateName(
        "kedro.runner.runner",
        "AbstractRunner._suggest_resume_scenario",
        "runners: a failed run within a run suggests nothing, the outer one does",
    ),
    PrivateName(
        "kedro.framework.context",
        "KedroContext._hook_manager",
        "projects: a plugin for one run, as what a run returns is not given to all that call the hook",
    ),
    PrivateName("kedro.framework.hooks.manager", "_create_hook_manager", "projects: the hooks for a run within a run"),
    PrivateName("kedro.framework.hooks.manager", "_register_hooks", "projects: the project's own hooks"),
    PrivateName("kedro.framework.hooks.manager", "_register_hooks_entry_points", "projects: the hooks of plugins"),
    PrivateName(
        "kedro.framework.project",
        "_ProjectPipelines.configure",
        "projects: the pipelines of a project in a worker process, without configuring its logging",
    ),
)
