"""A process that makes values in the store for long holds no more after an hour than after its first minute.

``make soak`` runs it for ENTREPOT_GROWTH_SECONDS (by default ENTREPOT_SOAK_SECONDS, or an hour), ``make test`` for 15
seconds. ENTREPOT_SOAK_SEED reproduces a run's choices.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from growth import LEAST_SAMPLES, MIB, Sample, describe_growth

SECONDS = float(os.environ.get("ENTREPOT_GROWTH_SECONDS") or os.environ.get("ENTREPOT_SOAK_SECONDS") or "15")
SEED = int(os.environ.get("ENTREPOT_SOAK_SEED", str(int(time.time()))))
REPORT = Path(__file__).parent.parent.parent / "build" / "soak" / "growth.json"


@pytest.mark.timeout(SECONDS + 180)
def test_a_process_that_makes_values_in_the_store_does_not_grow(
    new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    check_growth(SECONDS, new_daemon, wait_until)


def check_growth(seconds: float, new_daemon: Callable[..., Any], wait_until: Callable[..., None]) -> None:
    """Have a process make values for so long, and check what it and its store hold meanwhile and at the end."""
    print(f"\nENTREPOT_SOAK_SEED={SEED} ENTREPOT_GROWTH_SECONDS={seconds:g}, values made in the store")
    daemon = new_daemon("512MiB")
    program = str(Path(__file__).with_name("allocating_work.py"))
    done = subprocess.run(
        [sys.executable, program, daemon.address, str(seconds), str(SEED)],
        capture_output=True,
        text=True,
        timeout=seconds + 120,
        check=False,
    )
    assert done.returncode == 0, f"seed {SEED}: {done.stderr}"
    *lines, last = done.stdout.splitlines()
    samples = [Sample(**json.loads(line)) for line in lines]
    counts: dict[str, int] = json.loads(last)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({"seed": SEED, "counts": counts, "samples": list(map(json.loads, lines))}, indent=1))
    print(f"{len(samples)} samples, {counts}; see {REPORT}")
    assert describe_growth(samples) == [], f"seed {SEED}"
    assert counts["sealed"] > LEAST_SAMPLES, "hardly anything was put without a copy"
    assert counts["exceptions"] > 0
    with entrepot.connect(daemon.address, scope="growth") as store:
        wait_until(lambda: len(store.status()["clients"]) == 1, "the process's end to be noticed")
        status = store.status()
        left = {name: status[name] for name in ("objects", "blobs", "used_bytes", "pinned_bytes", "leased_bytes")}
        assert left == dict.fromkeys(left, 0), f"seed {SEED}: something was left behind"


def sample(seconds: float, **changes: Any) -> Sample:
    values: dict[str, Any] = {"values": 0, "leased_bytes": 0, "used_bytes": 0, "private_bytes": 100 * MIB}
    values |= {"mappings": 500, "descriptors": 20, "segments": 10, "most_mappings": 2, "most_descriptors": 2}
    return Sample(seconds=seconds, **({"waited": True} | values | changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"mappings": 600}, "mappings grew from 500 to 600"),
        ({"descriptors": 40}, "descriptors grew from 20 to 40"),
        ({"private_bytes": 200 * MIB}, "private_bytes grew"),
        ({"segments": 300}, "segments was 300"),
        ({"most_mappings": 4}, "most_mappings was 4"),
        ({"most_descriptors": 3}, "most_descriptors was 3"),
        ({"leased_bytes": 400 * MIB, "waited": False}, "leased_bytes was"),
        ({"leased_bytes": 4 * MIB}, "not returned"),
        ({"used_bytes": 1}, "not returned"),
        ({"values": 1, "waited": False}, "not returned"),
        ({"mappings": 510, "descriptors": 22, "segments": 30, "leased_bytes": 4 * MIB, "waited": False}, ""),
    ],
)
def test_growth_is_seen(changes: dict[str, Any], complaint: str) -> None:
    steady = [sample(float(seconds)) for seconds in range(50, 70)]
    changed = [*steady[:15], sample(65.0, **changes), *steady[16:]]
    assert describe_growth(steady) == []
    complaints = describe_growth(changed)
    assert (complaint in complaints[0]) if complaint else not complaints


def test_too_few_samples_are_no_proof() -> None:
    assert "tell nothing" in describe_growth([sample(1.0), sample(20.0)])[0]
    unfinished = [sample(float(seconds), waited=seconds < 19) for seconds in range(20)]
    assert describe_growth(unfinished) == ["the last sample did not wait for the return of everything"]
