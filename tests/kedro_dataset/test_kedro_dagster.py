"""kedro-dagster makes an op of each node of the starter's project; the ops, processes of their own, share by the store.

In an environment of its own, because kedro-dagster needs Dagster's web server and command line: `make environments`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import entrepot
import pytest

PYTHON = Path(__file__).resolve().parents[2] / ".venv-kedro-dagster/bin/python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.timeout(700),
    pytest.mark.skipif(not PYTHON.exists(), reason="the environment kedro-dagster is not there: `make environments`"),
]

SESSION = "dagster-run"
SETTINGS = """
executors:
  processes:
    multiprocess:
      max_concurrent: 2
jobs:
  shop:
    pipeline:
      pipeline_name: __default__
    executor: processes
"""
RUN_JOB = """
import tempfile
from dagster import DagsterInstance, execute_job, reconstructable

def job():
    from shop_project import definitions
    return definitions.defs.resolve_job_def("local__shop")

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, DagsterInstance.local_temp(folder) as instance:
        result = execute_job(reconstructable(job), instance)
        print("succeeded:", result.success)
"""


def test_each_node_is_an_op(tmp_path: Path, daemon: Any) -> None:
    project = tmp_path / "shop-project"

    def execute(*arguments: str, folder: Path = project) -> str:
        process = subprocess.run(
            [str(PYTHON), *arguments],
            cwd=folder,
            env=os.environ
            | {
                "ENTREPOT_ADDRESS": daemon.address,
                "ENTREPOT_SCOPE": "tests",
                "ENTREPOT_SESSION": SESSION,
                "DO_NOT_TRACK": "1",
                "PYTHONPATH": str(project / "src"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, process.stdout
        return process.stdout

    new = ("new", "--starter", "entrepot", "--name", "Shop Project", "--telemetry", "no")
    execute("-m", "kedro", *new, folder=tmp_path)
    with (project / "conf/base/catalog.yml").open("a") as catalog:
        catalog.write('"{name}":\n  type: entrepot_kedro.EntrepotDataset\n')
    execute("-m", "kedro", "dagster", "init", "--env", "local")
    (project / "conf/local/dagster.yml").write_text(SETTINGS.lstrip())
    (project / "run_job.py").write_text(RUN_JOB.lstrip())
    assert "succeeded: True" in execute("run_job.py")
    with entrepot.connect(daemon.address, scope="tests") as store:
        run = store.session(SESSION)
        names = {name.removeprefix("dataset:") for info in run.list() for name in info.names}
        assert {"orders", "taxed_orders", "customers"} <= names
        assert len(store.get_by_name("dataset:report")) == 10
