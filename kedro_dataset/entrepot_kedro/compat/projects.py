"""A project's settings: its hooks, and its pipelines in a process that Kedro has not configured."""

from __future__ import annotations

from typing import Any


def hook_manager() -> Any:
    """Return a manager with the hooks of project and plugins, as Kedro creates it for a node in its own process."""
    from kedro.framework.hooks.manager import _create_hook_manager, _register_hooks, _register_hooks_entry_points
    from kedro.framework.project import settings

    manager = _create_hook_manager()
    _register_hooks(manager, settings.HOOKS)
    _register_hooks_entry_points(manager, settings.DISABLE_HOOKS_FOR_PLUGINS)
    return manager


def manager_of(context: Any) -> Any:
    """Return the hook manager of the session that a context belongs to; None: it has none."""
    return getattr(context, "_hook_manager", None)


def configure_pipelines(package: str) -> None:
    """Make the pipelines of a project known in this process, and nothing else of it.

    Kedro configures logging in a worker whose project is known, which fails the second time.

    Args:
        package: the project's package.
    """
    from kedro.framework import project

    project.pipelines.configure(f"{package}.pipeline_registry")
