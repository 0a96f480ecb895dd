"""A project's settings: its hooks, and its pipelines in a process that Kedro has not configured."""

from __future__ import annotations

from pathlib import Path
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


def foreign_conf_source(context: Any) -> str | None:
    """Return where a session's configuration comes from, if that is not the project's own folder; None: it is.

    Args:
        context: of the session.

    Returns:
        a URL, or the absolute path of a folder or an archive.
    """
    from kedro.framework.project import settings

    source = getattr(context.config_loader, "conf_source", None)
    if source is None:
        return None
    if "://" in str(source):
        return str(source)
    path = Path(source).resolve()
    return None if path == (Path(context.project_path) / settings.CONF_SOURCE).resolve() else str(path)
