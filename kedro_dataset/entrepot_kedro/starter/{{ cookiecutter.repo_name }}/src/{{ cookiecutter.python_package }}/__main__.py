"""Runs the project where ``kedro package`` has been installed: ``python -m {{ cookiecutter.python_package }}``."""

from __future__ import annotations

from kedro.framework.cli.utils import find_run_command
from kedro.framework.project import configure_project


def main() -> None:
    """Run the project, with the options of ``kedro run``."""
    configure_project("{{ cookiecutter.python_package }}")
    find_run_command("{{ cookiecutter.python_package }}")()


if __name__ == "__main__":
    main()
