"""Small Kedro projects, and Kedro's command line in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

RUN_SECONDS = 300


def write_project(folder: Path, package: str, files: Mapping[str, str]) -> None:
    """Write a project.

    Args:
        folder: where.
        package: name of its package.
        files: text by path, relative to the folder; ``src/PACKAGE/pipeline_registry.py`` must be one of them. What else
            Kedro requires is added.
    """
    required = {
        "pyproject.toml": f"""
[tool.kedro]
package_name = "{package}"
project_name = "{package}"
kedro_init_version = "1.0.0"
source_dir = "src"
""",
        "conf/base/catalog.yml": "{}\n",
        "conf/local/.gitkeep": "",
        f"src/{package}/__init__.py": "",
        f"src/{package}/settings.py": "",
    }
    for name, text in (required | dict(files)).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip())


def kedro_environment() -> dict[str, str]:
    """Environment for Kedro's commands: this process's, with the tests' own commands, and without telemetry."""
    return os.environ | {
        "KEDRO_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "COLUMNS": "2000",  # prevents wrapping of log lines
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }


def execute(folder: Path, *command: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command of the tests' own environment in a project; its output is stdout and stderr together.

    Args:
        folder: the project.
        command: the command.
        variables: environment variables in addition to those of this process.
    """
    return subprocess.run(
        command,
        cwd=folder,
        env=kedro_environment() | dict(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS,
    )


def kedro(folder: Path, *arguments: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run ``kedro ...`` in a project, as :func:`execute` does."""
    return execute(folder, sys.executable, "-m", "kedro", *arguments, variables=variables)
