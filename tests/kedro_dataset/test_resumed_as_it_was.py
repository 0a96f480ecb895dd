"""What a failed ``kedro run`` says and leaves, and what ``kedro entrepot`` makes of it: the run as it was asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot_io.scopes import folder_scope
from kedro_projects import execute, kedro, write_project

FILES = {
    "conf/base/entrepot.yml": "intermediates: '*'\n",
    "conf/base/catalog.yml": 'total:\n  type: entrepot_kedro.EntrepotDataset\n  session: ""\n',
    "conf/base/parameters.yml": "rows: 10\n",
    "src/resumed/pipeline_registry.py": """
import json
import os
from pathlib import Path

import numpy as np
from kedro.pipeline import node, pipeline


def other():
    Path("default").touch()
    return "other"


def make(rows):
    return np.ones(rows)


def add(values):
    if "FAIL" in os.environ:
        raise RuntimeError("told to fail")
    return int(values.sum())


def write(values, total):
    Path("answer").write_text(json.dumps([len(values), total]))


def register_pipelines():
    return {
        "__default__": pipeline([node(other, None, "other", name="other")]),
        "sums": pipeline(
            [
                node(make, "params:rows", "values", name="make"),
                node(add, "values", "total", name="add"),
                node(write, ["values", "total"], None, name="write"),
            ]
        ),
    }
""",
}
SUMS = ("--pipeline", "sums")

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]


class Project:
    """A project whose datasets are loaded only when a run needs them.

    Args:
        folder: where it is made.
        address: of the store.

    Attributes:
        folder, address: these.
    """

    def __init__(self, folder: Path, address: str) -> None:
        write_project(folder, "resumed", FILES)
        self.folder = folder
        self.address = address
        self._variables = {"ENTREPOT_ADDRESS": address}

    def execute(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return kedro(self.folder, *arguments, variables=self._variables | variables)

    def python(self, code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python code in the project's folder."""
        return execute(self.folder, sys.executable, "-c", code, *arguments, variables=self._variables | variables)

    def output(self, *arguments: str, **variables: str) -> str:
        """Output of a command that succeeds, in a single line."""
        process = self.execute(*arguments, **variables)
        assert process.returncode == 0, process.stdout
        return " ".join(process.stdout.split())

    def fail(self, *arguments: str, **variables: str) -> str:
        """Output of a run that fails in its second node, in a single line."""
        process = self.execute("run", *SUMS, *arguments, FAIL="1", **variables)
        assert "told to fail" in process.stdout
        return " ".join(process.stdout.split())

    def sessions(self) -> set[str]:
        with entrepot.connect(self.address, scope=folder_scope("kedro", self.folder)) as store:
            return {info.session for info in store.sessions()}

    def answer(self) -> Any:
        return json.loads((self.folder / "answer").read_text())


@pytest.fixture
def project(tmp_path: Path, daemon: Any) -> Project:
    return Project(tmp_path, daemon.address)


def test_the_advice_tells_outputs_of_an_earlier_run_from_its_own(project: Project) -> None:
    project.output("run", *SUMS)
    failed = project.fail("--params", "rows=20")
    assert "(which leaves as it is what exists already: total)" in failed
    assert '--from-nodes "add"' in failed
    project.output("run", *SUMS, "--params", "rows=20", "--from-nodes", "add")
    assert project.answer() == [20, 20]


def test_a_run_that_computes_nothing_leaves_the_failed_one(project: Project) -> None:
    registry = project.folder / "src" / "resumed" / "pipeline_registry.py"
    without_side_effects = registry.read_text().replace('node(write, ["values", "total"], None, name="write"),', "")
    registry.write_text(without_side_effects)
    project.output("run", *SUMS)
    project.fail("--params", "rows=20")
    project.output("run", *SUMS, "--params", "rows=20", "--only-missing-outputs")  # `total` is that of the first run
    assert "from add on as the failed run" in project.output("entrepot", "resume")
    with entrepot.connect(project.address, scope=folder_scope("kedro", project.folder)) as store:
        assert store.get_by_name("dataset:total") == 20


def test_resume_runs_the_pipeline_with_the_parameters_that_failed(project: Project) -> None:
    project.output("run", *SUMS)  # makes a `total` that the failed run has not replaced
    project.fail("--params", "rows=30")
    refused = project.execute("entrepot", "resume", "--pipeline", "__default__")
    assert refused.returncode == 1
    assert "had pipeline_names ['sums'], but ['__default__'] is given" in " ".join(refused.stdout.split())
    resumed = project.output("entrepot", "resume")
    assert ", from add on as the failed run: " in resumed
    assert project.answer() == [30, 30]
    assert not (project.folder / "default").exists()
    assert "values" not in project.output("entrepot", "status")


def test_configuration_from_elsewhere_belongs_to_the_run(project: Project) -> None:
    elsewhere = project.folder / "elsewhere"
    shutil.copytree(project.folder / "conf", elsewhere)
    (elsewhere / "base" / "parameters.yml").write_text("rows: 40\n")
    source = ("--conf-source", "elsewhere")
    project.fail(*source)
    project.output("run", *SUMS, "--only-missing-outputs")
    assert project.answer() == [10, 10], "values of another configuration are not mixed in"
    project.fail(*source)
    assert "Continuing in the session" in project.output("run", *SUMS, "--only-missing-outputs", *source)
    project.fail(*source)
    assert f"conf_source {elsewhere}" in project.output("entrepot", "resume")
    assert project.answer() == [40, 40]


def test_a_run_that_left_nothing_is_not_taken_for_an_earlier_one(project: Project) -> None:
    project.fail("--params", "rows=30")
    session = project.output("entrepot", "status").partition(" kedro/")[2].partition(":")[0]
    newer = project.execute("run", *SUMS, "--params", "rows=-1")
    assert "negative dimensions" in newer.stdout
    refused = project.execute("entrepot", "resume")
    assert refused.returncode == 1
    assert f"name its session: --session kedro/{session}" in " ".join(refused.stdout.split())
    project.output("entrepot", "resume", "--session", f"kedro/{session}")
    assert project.answer() == [30, 30]


def test_a_run_that_is_refused_is_not_taken_for_the_one_that_failed(project: Project, tmp_path: Path) -> None:
    project.fail("--params", "rows=30")
    sessions = project.sessions()
    refused = project.execute("run", *SUMS, "--from-nodes", "add")  # without the parameters
    assert "values" in refused.stdout
    assert refused.returncode == 1
    assert project.sessions() == sessions
    assert "1 object" in project.output("entrepot", "checkpoint", str(tmp_path / "saved"))
    assert "from add on as the failed run" in project.output("entrepot", "resume")
    assert project.answer() == [30, 30]


def test_what_does_not_exist_is_reported_in_one_line(project: Project) -> None:
    project.fail("--params", "rows=30")
    refused = project.execute("entrepot", "resume", "--runner", "NoRunner")
    assert (refused.returncode, "Traceback" in refused.stdout) == (1, False)
    assert "there is no runner 'NoRunner'" in refused.stdout
    registry = project.folder / "src" / "resumed" / "pipeline_registry.py"
    registry.write_text(registry.read_text().replace('"sums": pipeline', '"totals": pipeline'))
    refused = project.execute("entrepot", "resume")
    assert (refused.returncode, "Traceback" in refused.stdout) == (1, False)
    assert "the project has no pipeline 'sums', only __default__, totals" in " ".join(refused.stdout.split())


def test_a_node_that_was_renamed_since_is_not_asked_for(project: Project) -> None:
    project.fail("--params", "rows=30")
    nodes = project.folder / "src" / "resumed" / "pipeline_registry.py"
    nodes.write_text(nodes.read_text().replace('name="add"', 'name="add_up"'))
    resumed = project.output("entrepot", "resume")
    assert "the project has no node add any more" in resumed
    assert "outputs that exist are left as they are" in resumed
    assert project.answer() == [30, 30]


def test_commands_leave_alone_what_another_project_with_the_same_scope_has(project: Project, tmp_path: Path) -> None:
    shared = {"ENTREPOT_SCOPE": "deployment"}
    project.fail(**shared)
    session = next(
        word.removesuffix(":")
        for word in project.output("entrepot", "status", **shared).split()
        if word.startswith("kedro/")
    )
    (tmp_path / "other").mkdir()
    other = Project(tmp_path / "other", project.address)
    assert "no failed run of this project" in other.execute("entrepot", "resume", **shared).stdout
    refused = other.execute("entrepot", "resume", "--session", session, **shared)
    assert f"is that of a run of the project in {tmp_path.resolve()}," in " ".join(refused.stdout.split())
    assert "nothing to remove" in other.output("entrepot", "gc", **shared)
    project.output("entrepot", "resume", **shared)
    assert project.answer() == [10, 10]


def test_what_only_python_can_ask_for_is_not_resumed_as_something_else(project: Project) -> None:
    code = """
import pathlib, sys
from kedro.framework.session import KedroSession
from kedro.framework.startup import bootstrap_project

bootstrap_project(pathlib.Path.cwd())
with KedroSession.create(runtime_params={"rows": 40, "day": pathlib.Path("day")}) as session:
    session.run(pipeline_names=["sums"], only_missing_outputs="again" in sys.argv)
"""
    assert "told to fail" in project.python(code, FAIL="1").stdout
    refused = project.execute("entrepot", "resume")
    assert refused.returncode == 1
    message = " ".join(refused.stdout.split())
    assert "parameters that only Python can represent" in message
    assert "run it again with only_missing_outputs=True" in message
    assert not (project.folder / "default").exists()
    again = project.python(code, "again")
    assert again.returncode == 0, again.stdout
    assert "Continuing in the session of an earlier run" in " ".join(again.stdout.split())
    assert project.answer() == [40, 40]


def test_a_store_that_cannot_be_reached_fails_the_run_before_its_first_node(project: Project) -> None:
    failed = project.execute("run", ENTREPOT_ADDRESS=f"unix://{project.folder}/nothing.sock")
    assert failed.returncode == 1
    assert "StoreUnavailable" in failed.stdout
    assert not (project.folder / "default").exists()


def test_commands_leave_alone_what_belongs_to_a_dag_run(project: Project) -> None:
    dag_run = {"AIRFLOW_CTX_DAG_ID": "shop", "AIRFLOW_CTX_DAG_RUN_ID": "run-7"}
    project.output("run", *SUMS, "--nodes", "make", **dag_run)
    assert "kedro/airflow/shop/run-7: of a DAG run of Airflow, " in project.output("entrepot", "status")
    assert "nothing to remove" in project.output("entrepot", "gc")
    assert "no failed run of this project" in project.execute("entrepot", "resume").stdout
    project.output("run", *SUMS, "--from-nodes", "add", **dag_run)
    assert project.answer() == [10, 10]


FILE_NODES = """
import json
import os
from pathlib import Path

from kedro.pipeline import node, pipeline


def note(name):
    with open("ran", "a") as out:
        out.write(name + "\\n")


def make():
    note("make")
    return [1, 2, 3]


def plot(values):
    note("plot")
    return {"points": values}


def parts(values):
    note("parts")
    yield {"part": 1}
    if "FAIL" in os.environ:
        raise RuntimeError("told to fail")


def show(values):
    note("show")


def fit(values):
    note("fit")
    return sum(values)


def check(fitted, values):
    note("check")
    if "FAIL" in os.environ:
        raise RuntimeError("told to fail")


def register_pipelines():
    return {
        "__default__": pipeline([]),
        "sums": pipeline(
            [
                node(make, None, "values", name="make"),
                node(plot, "values", "chart", name="plot"),
                node(show, "values", None, name="show"),
                node(fit, "values", "fitted", name="fit"),
                node(check, ["fitted", "values"], None, name="check"),
            ]
        ),
        "generated": pipeline(
            [node(make, None, "values", name="make"), node(parts, "values", "chart", name="parts")]
        ),
        "unsaved": pipeline(
            [node(make, None, "values", name="make"), node(lambda values: {1j}, "values", "chart", name="wrong")]
        ),
    }
"""
CHART = """
chart:
  type: kedro_datasets.json.JSONDataset
  filepath: chart.json
"""


@pytest.mark.parametrize("runner", ["SequentialRunner", "ThreadRunner", "ParallelRunner"])
def test_nodes_that_wrote_files_are_not_repeated(project: Project, runner: str) -> None:
    (project.folder / "src" / "resumed" / "pipeline_registry.py").write_text(FILE_NODES)
    (project.folder / "conf/base/catalog.yml").write_text(CHART)
    ran = project.folder / "ran"
    failed = project.fail("--runner", runner)
    assert '--from-nodes "check"' in failed
    assert sorted(ran.read_text().split()) == ["check", "fit", "make", "plot", "show"]
    ran.unlink()
    project.fail("--runner", runner, "--from-nodes", "check")
    project.output("entrepot", "resume", "--runner", runner)
    assert ran.read_text().split() == ["check", "check"]


@pytest.mark.parametrize("pipeline", ["generated", "unsaved"])
def test_a_node_whose_outputs_are_not_all_saved_is_repeated(project: Project, pipeline: str) -> None:
    """A generator saves its outputs in parts; and what a node returns may be impossible to save."""
    (project.folder / "src" / "resumed" / "pipeline_registry.py").write_text(FILE_NODES)
    (project.folder / "conf/base/catalog.yml").write_text(CHART)
    failed = project.execute("run", "--pipeline", pipeline, FAIL="1")
    assert failed.returncode != 0
    assert f'--from-nodes "{"parts" if pipeline == "generated" else "wrong"}"' in " ".join(failed.stdout.split())
