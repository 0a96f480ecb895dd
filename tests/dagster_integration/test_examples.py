"""The definitions of examples/dagster: in this process, and a job of them in Dagster's default executor."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, Definitions, ExecuteInProcessResult

pytestmark = pytest.mark.usefixtures("own_store")

EXAMPLES = Path(__file__).parents[2] / "examples/dagster"
ALL_REGIONS = {"dagster/asset_partition_range_start": "north", "dagster/asset_partition_range_end": "west"}


def definitions(name: str) -> Definitions:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    defs: Definitions = module.defs
    return defs


def run(defs: Definitions, job: str, **options: Any) -> ExecuteInProcessResult:
    result = defs.resolve_job_def(job).execute_in_process(**options)
    assert result.success
    return result


def test_typed_inputs_with_an_ephemeral_instance() -> None:
    result = run(definitions("typed_inputs"), "everything")
    assert result.output_for_node("total") == 750.0
    assert list(result.output_for_node("by_customer")["price"]) == [250.0] * 3
    assert result.output_for_node("rows") == 301


def test_partitions(instance: DagsterInstance) -> None:
    defs = definitions("partitions")
    partitioned = [AssetKey("orders"), AssetKey("returns")]
    assert run(defs, "__ASSET_JOB", instance=instance, asset_selection=partitioned, tags=ALL_REGIONS)
    returned: Any = defs.load_asset_value("returns", instance=instance, partition_key="south")
    assert returned.rows() == [("south", 2.5)] * 10
    tables = [AssetKey("revenue"), AssetKey("rows_by_region")]
    result = run(defs, "__ASSET_JOB", instance=instance, asset_selection=tables)
    assert result.output_for_node("revenue").rows() == [("north", 250.0), ("south", 250.0), ("west", 250.0)]
    assert result.output_for_node("rows_by_region") == dict.fromkeys(["north", "south", "west"], 100)


def test_durable_tier(instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSETS_FOLDER", str(tmp_path / "assets"))
    assert run(definitions("durable_tier"), "__ASSET_JOB", instance=instance).output_for_node("revenue") == 750.0
    assert (tmp_path / "assets/orders").is_file()


@pytest.mark.slow
def test_pipes(instance: DagsterInstance) -> None:
    assert run(definitions("pipes_assets"), "__ASSET_JOB", instance=instance).output_for_node("revenue") == 7500.0


def test_failures(instance: DagsterInstance) -> None:
    defs = definitions("failures")
    assert run(defs, "sales", instance=instance).output_for_node("revenue") == 750.0
    assert [sensor.name for sensor in defs.sensors or ()] == ["entrepot_store_failures"]


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_durable_tier_in_processes(instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSETS_FOLDER", str(tmp_path / "assets"))
    command = [sys.executable, "-m", "dagster", "job", "execute", "-f", str(EXAMPLES / "durable_tier.py")]
    done = subprocess.run([*command, "-j", "everything"], capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "assets/orders").is_file()
    for name in ("orders", "revenue"):
        (record,) = instance.fetch_observations(AssetKey(name), limit=2).records
        observation = record.event_log_entry.asset_observation
        assert observation is not None
        assert observation.metadata["entrepot/durable_tier"].value == "written"


IMPORTS = """
import json, sys
import dagster
before = set(sys.modules)
from entrepot_dagster import EntrepotIOManager
EntrepotIOManager()
print(json.dumps(sorted(set(sys.modules) - before)))
"""
MOST_MODULES = 110  # 92 as this is written; small ones, and no library for data


def test_what_a_step_imports_beyond_dagster() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ENTREPOT_")}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=120, check=True, env=environment
    )
    modules: list[str] = json.loads(done.stdout)
    packages = {name.partition(".")[0] for name in modules}
    own = {"entrepot", "entrepot_dagster", "entrepot_io", "msgpack"}
    others = {name for name in packages - own - sys.stdlib_module_names if not name.startswith("_cython")}
    assert others == set()
    assert len(modules) <= MOST_MODULES


CPU_TIME = """
import time
begin = time.process_time()
import dagster
between = time.process_time()
from entrepot_dagster import EntrepotIOManager
EntrepotIOManager()
print((time.process_time() - between) / (between - begin))
"""
MOST_OF_DAGSTERS = 0.2  # 0.12 to 0.15 as this is written; a ratio, so that other load on the machine matters less


@pytest.mark.slow
def test_what_a_steps_start_takes_beyond_dagsters() -> None:
    def ratio() -> float:
        done = subprocess.run([sys.executable, "-c", CPU_TIME], capture_output=True, text=True, timeout=120, check=True)
        return float(done.stdout)

    assert min(ratio() for _ in range(3)) <= MOST_OF_DAGSTERS
