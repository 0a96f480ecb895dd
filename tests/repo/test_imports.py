"""Cost of imports, and modules that they must not load."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = [
    *("numpy", "pyarrow", "pandas", "polars", "scipy", "sklearn", "xarray", "jax", "torch"),
    *("airflow", "dagster", "kedro", "kubernetes"),
    *("fsspec", "prometheus_client", "pydantic", "ruamel", "yaml"),
    *("starlette", "uvicorn", "textual", "rich", "opentelemetry", "IPython"),
]
PACKAGES = {
    "entrepot": "core/python",
    "entrepot_io": "io_managers",
    "entrepot_checkpoints": "io_managers",
    "entrepot_policy": "io_managers",
    "entrepot_pipes": "io_managers",
    "entrepot_mount": "io_managers",
    "entrepot_airflow": "airflow_provider",
    "entrepot_dagster": "dagster_integration",
    "entrepot_kedro": "kedro_dataset",
    "entrepot_cluster": "cluster",
    "entrepot_frames": "dataframes",
    "entrepot_metrics": "observability",
    "entrepot_ui": "observability",
    "entrepot_operator": "operator",
}


def _loaded_by(code: str, *, cwd: Path = ROOT) -> list[str]:
    """Top-level modules loaded in a fresh interpreter after ``code``."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded: list[str] = json.loads(done.stdout.splitlines()[-1])
    return loaded


@pytest.mark.parametrize(
    "package",
    [
        "entrepot",
        "entrepot_io",
        "entrepot_io.checkpoints",
        "entrepot_io.filesystem",
        "entrepot_checkpoints",
        "entrepot_checkpoints.commands",
        "entrepot_checkpoints.durable_tier",
        "entrepot_operator.inject_command",
        "entrepot_operator.placement.pod_placement",
        "entrepot_operator.placement.cached_source",
        "entrepot_io.policy",
        "entrepot_io.policy.events",
        "entrepot_frames",
        "entrepot_metrics",
        "entrepot_ui",
        "entrepot_ui.commands",
        "entrepot_pipes",
        "entrepot_mount",
        "entrepot_policy",
        "entrepot_policy.commands",
        "entrepot_policy.rules.loader",
        "entrepot_policy.rules.validation",
        "entrepot_policy.runtime",
        "entrepot_operator",
    ],
)
def test_importing_loads_nothing_heavy(package: str) -> None:
    assert [name for name in _loaded_by(f"import {package}") if name in HEAVY] == []


def test_all_names_of_the_dagster_plugin_are_there_without_dagster_k8s() -> None:
    code = (
        "import sys, inspect\n"
        "sys.modules['dagster_k8s'] = None\n"
        "from entrepot_dagster import *\n"
        "import entrepot_dagster\n"
        "assert EntrepotIOManager is dict(inspect.getmembers(entrepot_dagster))['EntrepotIOManager']\n"
        "try:\n"
        "    from entrepot_dagster import entrepot_k8s_job_executor\n"
        "except ModuleNotFoundError as error:\n"
        "    assert error.name == 'dagster_k8s'\n"
        "else:\n"
        "    raise AssertionError('imported without dagster-k8s')\n"
    )
    assert "dagster" in _loaded_by(code)


def test_definitions_of_dagster_load_no_client_of_the_store() -> None:
    """Code servers, Dagster's daemon and the processes of runs load definitions, and read and write nothing."""
    code = (
        "import sys\n"
        "from dagster import Definitions, asset\n"
        "from entrepot_dagster import EntrepotIOManager\n"
        "manager = EntrepotIOManager(copy='on_write', reserve='measured', object_strings='arrow')\n"
        "defs = Definitions(assets=[asset(lambda: 1, name='numbers')], resources={'io_manager': manager})\n"
        "defs.resolve_asset_graph()\n"
        "unneeded = ['entrepot._core', 'entrepot.raw_objects', 'entrepot_io.values', 'entrepot_policy']\n"
        "assert not {*unneeded} & {*sys.modules}, sorted({*unneeded} & {*sys.modules})\n"
        "import entrepot_dagster.stored_values\n"
        "assert {*unneeded} - {*sys.modules} == {'entrepot_policy'}"
    )
    assert {name for name in _loaded_by(code) if name in HEAVY} <= {"dagster", "pydantic", "yaml"}


def test_every_public_name_of_the_operator_is_placements_own() -> None:
    import entrepot_operator
    import entrepot_operator.placement

    for name in entrepot_operator.__all__:
        assert name in dir(entrepot_operator)
        assert getattr(entrepot_operator, name) is getattr(entrepot_operator.placement, name)
    with pytest.raises(AttributeError, match="'entrepot_operator' has no attribute 'Reason'"):
        _ = entrepot_operator.Reason


def test_the_control_notices_a_heavy_import() -> None:
    assert "numpy" in _loaded_by("import entrepot, numpy")


def test_entry_points_are_registered_and_load_cheaply() -> None:
    registered = entry_points(group="entrepot.codecs")
    assert [(entry.name, entry.value) for entry in registered if entry.value.startswith("entrepot")] == [
        ("entrepot_io", "entrepot_io.codecs:codec_specs")
    ]
    code = (
        "from importlib.metadata import entry_points\n"
        "specs = [s for e in entry_points(group='entrepot.codecs') if e.name == 'entrepot_io' for s in e.load()()]\n"
        "assert specs, 'no codec is registered'"
    )
    assert [name for name in _loaded_by(code) if name in HEAVY] == []


def test_fsspec_knows_the_file_system() -> None:
    registered = entry_points(group="fsspec.specs")
    assert [entry.value for entry in registered if entry.name == "entrepot"] == [
        "entrepot_io.filesystem.file_system:EntrepotFileSystem"
    ]
    code = "import fsspec\nfsspec.get_filesystem_class('entrepot')"
    assert [name for name in _loaded_by(code) if name in HEAVY] == ["fsspec"]


def test_the_folder_operator_does_not_hide_the_standard_library() -> None:
    assert not (ROOT / "operator/__init__.py").exists()
    # From the repository's root, since Python searches the current directory first.
    assert "entrepot_operator" in _loaded_by(
        "import operator, entrepot_operator\n"
        "assert operator.__file__.endswith('/operator.py'), operator.__file__\n"
        "assert operator.add(1, 2) == 3",
        cwd=ROOT,
    )


@pytest.mark.parametrize(("package", "folder"), PACKAGES.items())
def test_every_package_says_that_it_is_typed(package: str, folder: str) -> None:
    assert (ROOT / folder / package / "__init__.py").is_file()
    assert (ROOT / folder / package / "py.typed").is_file()


def _imported_through_the_package(source: str) -> list[str]:
    """Return what a module of the core imports through the package, which import-linter is told to ignore there."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "entrepot":
            names.append(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module == "entrepot":
            names += [alias.name for alias in node.names if not _is_module(alias.name)]
    return names


def _is_module(name: str) -> bool:
    path = ROOT / "core/python/entrepot" / name
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_the_cores_modules_import_only_the_extension_through_the_package() -> None:
    files = sorted((ROOT / "core/python/entrepot").rglob("*.py"))
    names = {file.name: _imported_through_the_package(file.read_text(encoding="utf-8")) for file in files}
    assert {name for imported in names.values() for name in imported} == {"_core"}


def test_the_control_notices_an_import_through_the_package() -> None:
    assert _imported_through_the_package("def f():\n    from entrepot import Store, errors") == ["Store"]
    assert _imported_through_the_package("import entrepot\nentrepot.connect()") == ["connect"]


def test_console_scripts_point_at_functions() -> None:
    scripts = {entry.name: entry.value for entry in entry_points(group="console_scripts") if "entrepot" in entry.name}
    assert scripts == {
        "entrepot": "entrepot.cli:main",
        "entrepotd": "entrepot.daemon_main:main",
        "entrepot-plasma-store": "entrepot.plasma_store_main:main",
    }
    for value in scripts.values():
        module, _, function = value.partition(":")
        assert "entrepot" in _loaded_by(f"import {module}\nassert callable({module}.{function})")
