"""Values that are put without a copy: ``zero-copy``, ``decoding`` and ``handoff``, with the build under test."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.machine import ROOT
from benchmarks.harness.plan import MIB, Plan
from benchmarks.harness.stage import SystemsUnderTest

PART_SECONDS = 1200


def measure(under_test: SystemsUnderTest, plan: Plan) -> dict[str, Any]:
    """Run all of them; one that fails is recorded under ``failures``."""
    mib = max(plan.large_bytes // MIB, 16)  # an eighth of which is the least that is made in the store
    rounds = str(plan.large_rounds)
    commands = {
        "zero-copy": ["--mib", str(mib), "--rounds", rounds, "--puts", str(5 * plan.large_rounds)],
        "decoding": ["--mib", str(max(mib // 4, 1)), "--rounds", rounds],
        # With the orchestrators' own transports, which are measured by the flights example, it would take minutes.
        "handoff": ["--mib", str(mib), "--transports", "entrepot"],
    }
    result: dict[str, Any] = {"failures": {}}
    for name, options in commands.items():
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            done = subprocess.run(
                [under_test.package.python, "-m", "benchmarks", name, *options, "--json", out.name],
                cwd=ROOT,
                env=under_test.package.variables,
                capture_output=True,
                text=True,
                timeout=PART_SECONDS,
            )
            if done.returncode == 0:
                figures = json.loads(Path(out.name).read_text(encoding="utf-8"))
                result |= {key: value for key, value in figures.items() if key not in ("machine", "commit")}
            else:
                print(f"{name}: {done.stderr.strip()[-1000:]}", flush=True)
                result["failures"][name] = done.stderr.strip()[-1000:]
    return result
