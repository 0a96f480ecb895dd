"""Rendering the chart: by Helm itself, built once from pinned modules, or by only its engine, built in seconds."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

HERE = Path(__file__).parent / "helm"
RENDER = Path(__file__).parent / "render"
CHART = Path(__file__).resolve().parents[3] / "operator" / "chart"
# Computed on import, because the tests change XDG_CACHE_HOME.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "entrepot"
BUILD = "ENTREPOT_BUILD_HELM"
_BUILD_SECONDS = 1200.0


def _program() -> Path:
    key = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(HERE.iterdir()))).hexdigest()[:16]
    cached = CACHE / f"helm-{key}"
    if cached.exists():
        return cached
    go = shutil.which("go")
    if not os.environ.get(BUILD):
        pytest.skip(f"Helm was never built here, which takes minutes: {BUILD}=1 builds it ('make test-full' does)")
    if go is None:
        pytest.fail(f"{BUILD} is set, but there is no Go here")
    partial = CACHE / f"helm-{key}.{os.getpid()}"
    CACHE.mkdir(parents=True, exist_ok=True)
    # The same flags as for the control plane, because most packages are shared with it.
    command = [go, "build", "-p", "2", "-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags", "-s -w"]
    variables = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    variables["XDG_CACHE_HOME"] = str(CACHE.parent)
    done = subprocess.run(
        [*command, "-o", str(partial), "."],
        cwd=HERE,
        env=variables,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
    )
    if done.returncode != 0:
        pytest.fail(f"go build failed:\n{done.stderr[-3000:]}")
    partial.rename(cached)
    return cached


@pytest.fixture(scope="module")
def helm() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``helm(values, namespace)``: lint and render the chart with these values; prints JSON with the files by name."""
    program = _program()

    def run(values: Any, namespace: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), str(CHART), namespace, "v1.36.3"]
        return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=120)

    return run


def _merged(values: Any, changes: Any) -> Any:
    """Values merged as by Helm: mappings key by key."""
    if not isinstance(values, dict) or not isinstance(changes, dict):
        return changes
    return {**values, **{key: _merged(values.get(key), change) for key, change in changes.items()}}


@pytest.fixture(scope="session")
def _renderer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go here: the chart's templates are rendered by its engine")
    program = tmp_path_factory.mktemp("render") / "render"
    settings = os.environ | {
        "CGO_ENABLED": "0",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
        "XDG_CACHE_HOME": str(CACHE.parent),
    }
    done = subprocess.run(
        [go, "build", "-p", "2", "-buildvcs=false", "-o", str(program), "."],
        cwd=RENDER,
        env=settings,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture
def render(_renderer: Path) -> Callable[..., list[Any]]:
    """``render(values, namespace=…, release=…, existing=…)``: the objects of an installation with these values.

    ``existing`` is what the cluster already contains, by kind. If the templates refuse the values, ``ValueError`` is
    raised.
    """
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def run(
        values: Any = None, namespace: str = "entrepot-system", release: str = "entrepot", existing: Any = None
    ) -> list[Any]:
        merged = _merged(defaults, values or {})
        jsonschema.validate(merged, schema)
        given = {
            "Values": merged,
            "Release": {"Name": release, "Namespace": namespace, "Service": "Helm"},
            "Chart": {key[0].upper() + key[1:]: value for key, value in about.items()},
            "existing": existing or {},
        }
        done = subprocess.run(
            [str(_renderer), str(CHART / "templates")],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode != 0:
            raise ValueError(done.stderr)
        files = json.loads(done.stdout)
        return [
            manifest
            for name, text in files.items()
            if name.endswith(".yaml")
            for manifest in yaml.safe_load_all(text)
            if manifest
        ]

    return run
