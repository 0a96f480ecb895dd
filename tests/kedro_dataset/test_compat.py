"""Kedro's private names exist, and each function of the plugin's compat package does what it promises."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Executor, ProcessPoolExecutor
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from entrepot_io.private_names import PrivateName
from entrepot_kedro.compat.datasets import EphemeralByState, is_ephemeral, uncached
from entrepot_kedro.compat.nodes import replace_run, restore_run
from entrepot_kedro.compat.private_names import PRIVATE_NAMES
from entrepot_kedro.compat.projects import hook_manager
from entrepot_kedro.compat.runners import ExecutorRunner, InnerRunner
from kedro.io import AbstractDataset, CachedDataset, DataCatalog, MemoryDataset, SharedMemoryDataCatalog
from kedro.pipeline import Pipeline, node
from kedro.runner import SequentialRunner
from kedro_datasets.text import TextDataset

sys.path.insert(0, str(Path(__file__).parents[1] / "repo"))

from tool_modules import load_tool


class ProbeDataset(AbstractDataset[Any, Any]):
    """A dataset in memory that counts its releases."""

    def __init__(self) -> None:
        self.value: Any = None
        self.releases = 0

    def load(self) -> Any:
        return self.value

    def save(self, data: Any) -> None:
        self.value = data

    def _exists(self) -> bool:
        return self.value is not None

    def _release(self) -> None:
        self.releases += 1

    def _describe(self) -> dict[str, Any]:
        return {}


def chain() -> Pipeline:
    return Pipeline([node(len, "text", "length", name="measure"), node(repr, "length", "digits", name="write")])


@pytest.fixture
def catalog() -> DataCatalog:
    """A catalog with a probe between two nodes, and one after them."""
    probes: dict[str, Any] = {"length": ProbeDataset(), "digits": ProbeDataset()}
    return DataCatalog({"text": MemoryDataset("abc"), **probes})


# --- the names


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/check_private_names.py as a module."""
    return load_tool("check_private_names", monkeypatch)


def test_the_installed_kedro_has_the_private_names(checker: ModuleType) -> None:
    assert checker.missing_names(PRIVATE_NAMES, metadata.version("kedro")) == []


@pytest.mark.parametrize("attribute", ["AbstractDataset._invented", "_Invented", "CachedDataset._dataset"])
def test_an_invented_name_is_reported(checker: ModuleType, attribute: str) -> None:
    invented = PrivateName("kedro.io.core", attribute, "test")
    (line,) = checker.missing_names([*PRIVATE_NAMES, invented], metadata.version("kedro"))
    assert line.startswith(f"kedro.io.core:{attribute}: ")


# --- datasets


def test_a_cache_is_unwrapped() -> None:
    inner = MemoryDataset(1)
    assert uncached(CachedDataset(inner)) is inner
    assert uncached(inner) is inner
    assert uncached(None) is None


@pytest.mark.parametrize("ephemeral", [False, True])
def test_kedro_makes_a_missing_value_again_unless_it_ends_with_its_run(ephemeral: bool, catalog: DataCatalog) -> None:
    class Probe(EphemeralByState, ProbeDataset):
        def ends_with_its_run(self) -> bool:
            return ephemeral

    probe: Any = Probe()
    catalog["digits"] = probe
    assert is_ephemeral(probe) is ephemeral
    SequentialRunner().run(chain(), catalog, only_missing_outputs=True)
    assert (probe.value is None) is ephemeral


def test_kedros_own_datasets_say_whether_they_end_with_their_run() -> None:
    assert is_ephemeral(MemoryDataset())
    assert not is_ephemeral(ProbeDataset())


# --- nodes


def test_a_replaced_run_is_called_by_the_runner(catalog: DataCatalog) -> None:
    pipeline = chain()
    measure = next(each for each in pipeline.nodes if each.name == "measure")
    replace_run(measure, lambda inputs: {"length": 42})
    SequentialRunner().run(pipeline, catalog)
    assert catalog.load("digits") == "42"
    restore_run(measure)
    restore_run(measure)  # not replaced any more: nothing happens
    SequentialRunner().run(pipeline, catalog)
    assert catalog.load("digits") == "3"


# --- projects


def test_the_hook_manager_has_the_hooks_of_plugins() -> None:
    from entrepot_kedro.hooks import hooks

    manager = hook_manager()
    assert hooks in manager.get_plugins()
    assert callable(manager.hook.before_node_run)


def test_only_the_pipelines_of_a_project_are_configured(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "pipeline_registry.py").write_text(
        "from kedro.pipeline import Pipeline, node\n"
        "def register_pipelines():\n    return {'__default__': Pipeline([node(len, 'a', 'b', name='measure')])}\n"
    )
    code = (
        "from entrepot_kedro.compat.projects import configure_pipelines\n"
        "from kedro.framework import project\n"
        "configure_pipelines('shop')\n"
        "assert [node.name for node in project.pipelines['__default__'].nodes] == ['measure']\n"
        "assert project.PACKAGE_NAME is None\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=100)


# --- runners


def test_an_inner_run_releases_nothing(catalog: DataCatalog) -> None:
    probe: Any = catalog["length"]
    InnerRunner().run(chain(), catalog)
    assert probe.releases == 0
    SequentialRunner().run(chain(), catalog)
    assert probe.releases == 1, "Kedro's own runner releases it, so the test would notice"


def test_a_failed_inner_run_suggests_nothing(catalog: DataCatalog, caplog: pytest.LogCaptureFixture) -> None:
    failing = Pipeline([*chain().nodes, node(abs, "digits", "never", name="fail")])
    with pytest.raises(TypeError):
        InnerRunner().run(failing, catalog)
    assert "resume" not in caplog.text
    with pytest.raises(TypeError):
        SequentialRunner().run(failing, catalog)
    assert "resume" in caplog.text


def test_nodes_run_in_the_executor_of_the_subclass(tmp_path: Path) -> None:
    created: list[int] = []

    class OwnExecutorRunner(ExecutorRunner):
        def create_executor(self, max_workers: int) -> Executor:
            created.append(max_workers)
            return ProcessPoolExecutor(max_workers)

    digits: Any = TextDataset(filepath=str(tmp_path / "digits"))
    catalog = SharedMemoryDataCatalog({"text": MemoryDataset("abcd"), "digits": digits})
    OwnExecutorRunner(max_workers=2).run(chain(), catalog)
    assert (tmp_path / "digits").read_text() == "4"
    assert created
