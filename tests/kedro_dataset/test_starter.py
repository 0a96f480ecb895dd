"""The starter: a project made by ``kedro new``, run by worker processes, in a notebook, and by Airflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

TIMEOUT_SECONDS = 300
READ_REPORT = 'report = catalog.load("report"); print("rows:", len(report), "columns:", *report.columns)'
REPORT = "rows: 10 columns: customer taxed"


class Project:
    """A project of the starter.

    Args:
        folder: where to create it.
        address: the store.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self.environment = os.environ | {
            "ENTREPOT_ADDRESS": address,
            "DO_NOT_TRACK": "1",
            "COLUMNS": "2000",  # prevents wrapping of log lines
        }
        self.folder = folder
        self.execute(
            sys.executable, "-m", "kedro", "new", "--starter", "entrepot", "--name", "Shop Project", "--telemetry", "no"
        )
        self.folder = folder / "shop-project"

    def execute(self, *command: str, **variables: str) -> str:
        """Run a command in the project, and return its output."""
        process = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        assert process.returncode == 0, process.stdout
        return process.stdout

    def kedro(self, *arguments: str) -> str:
        """Run a command of Kedro."""
        return self.execute(sys.executable, "-m", "kedro", *arguments)


@pytest.fixture
def project(tmp_path: Path, daemon: Any) -> Project:
    return Project(tmp_path, daemon.address)


def test_it_runs_under_worker_processes_and_in_a_notebook(project: Project) -> None:
    output = project.kedro("run", "--runner", "ParallelRunner")
    assert "Saving data to report (EntrepotDataset)" in output
    assert "override the default dataset" not in output, "a warning for each dataset"
    listed = project.kedro("entrepot", "status")
    assert "  report" in listed.splitlines()
    assert "orders" not in listed
    # As in a notebook: the extension defines `catalog`, `pipelines` and `session`.
    notebook = f"""
from IPython.testing.globalipapp import start_ipython
shell = start_ipython()
shell.run_line_magic("load_ext", "kedro.ipython")
for code in ({READ_REPORT!r}, 'outputs = session.run(); print("again:", len(outputs["report"].load()))'):
    result = shell.run_cell(code)
    result.raise_error()
"""
    output = project.execute(sys.executable, "-c", notebook)
    assert REPORT in output
    assert "again: 10" in output


def test_it_runs_where_its_package_is_installed(project: Project, tmp_path: Path) -> None:
    """Without the project: only the package, and the configuration, as ``kedro package`` archives it."""
    installed, here = tmp_path / "site-packages", tmp_path / "here"
    here.mkdir()
    shutil.copytree(project.folder / "src" / "shop_project", installed / "shop_project")
    with tarfile.open(here / "conf-shop_project.tar.gz", "w:gz") as archive:
        archive.add(project.folder / "conf", "conf")
    project.folder = here
    run = ("-m", "shop_project", "--conf-source", "conf-shop_project.tar.gz", "--runner", "ThreadRunner")
    output = project.execute(sys.executable, *run, PYTHONPATH=str(installed))
    assert "Saving data to report (EntrepotDataset)" in output
    assert "Saving data to orders (EntrepotDataset)" in output


def test_each_node_is_a_task_of_airflow(project: Project, tmp_path: Path) -> None:
    """kedro-airflow without grouping: tasks share what the catalog has no entry for, in the session of the DAG run."""
    project.kedro("airflow", "create", "--target-dir", "dags")
    variables = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(project.folder / "dags"),
        "PYTHONPATH": os.pathsep.join([str(project.folder / "src"), str(project.folder / "dags")]),
    }
    (tmp_path / "airflow").mkdir()
    project.execute(sys.executable, "-m", "airflow", "db", "migrate", **variables)
    code = """
import gc, shop_project_dag
from airflow.sdk import DAG
(dag,) = (value for value in gc.get_objects() if isinstance(value, DAG))
run = dag.test()
print("ended:", run.state, *sorted(f"{task.task_id}={task.state}" for task in run.get_task_instances()))
"""
    output = project.execute(sys.executable, "-c", code, **variables)
    assert "ended: success add-tax=success make-orders=success report=success revenue=success" in output, output
    assert "Saving data to orders (EntrepotDataset)" in output
    code = f"""
from pathlib import Path
from kedro.framework.session import KedroSession
from kedro.framework.startup import bootstrap_project
bootstrap_project(Path.cwd())
with KedroSession.create() as session:
    catalog = session.load_context().catalog
    {READ_REPORT}
"""
    assert REPORT in project.execute(sys.executable, "-c", code)
