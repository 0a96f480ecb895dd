"""Helm's own linter and engine, built once from pinned modules and kept where the control plane is kept too."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent / "helm"
CHART = Path(__file__).resolve().parents[3] / "operator" / "chart"
# As it is when this is imported: the tests put another in its place.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "entrepot"
BUILD = "ENTREPOT_BUILD_HELM"
_BUILD_SECONDS = 1200.0


def _program() -> Path:
    key = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(HERE.iterdir()))).hexdigest()[:16]
    wanted = CACHE / f"helm-{key}"
    if wanted.exists():
        return wanted
    go = shutil.which("go")
    if not os.environ.get(BUILD):
        pytest.skip(f"Helm was never built here, which takes minutes: {BUILD}=1 builds it ('make soak' does)")
    if go is None:
        pytest.fail(f"{BUILD} is set, but there is no Go here")
    made = CACHE / f"helm-{key}.{os.getpid()}"
    CACHE.mkdir(parents=True, exist_ok=True)
    # The flags are those of the control plane, which shares most packages with it.
    command = [go, "build", "-p", "2", "-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags", "-s -w"]
    variables = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    variables["XDG_CACHE_HOME"] = str(CACHE.parent)
    done = subprocess.run(
        [*command, "-o", str(made), "."],
        cwd=HERE,
        env=variables,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
    )
    if done.returncode != 0:
        pytest.fail(f"go build failed:\n{done.stderr[-3000:]}")
    made.rename(wanted)
    return wanted


@pytest.fixture(scope="module")
def helm() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``helm(values, namespace)``: the chart with these values, linted and rendered, as JSON of files by name."""
    program = _program()

    def run(values: Any, namespace: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), str(CHART), namespace, "v1.36.3"]
        return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=120)

    return run
