"""The demo: a pipeline whose pods are placed near their data by a real scheduler, on nodes simulated on this machine.

    python -m examples.kubernetes [--nodes N] [--shards N] [--rows N] [--out FOLDER]

It starts a Kubernetes control plane on loopback, nodes that exist only in its API, and for each of them a store and its
publisher. It fails unless every pod finds its inputs in its node's store. It writes ``placement.png``, ``results.txt``
and ``results.json`` to the output directory. Every process it starts ends with it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from examples.kubernetes.pipeline import Task, place_without, run_stage, tasks
from examples.kubernetes.present import draw, text_table

ROOT = Path(__file__).resolve().parents[2]
ZONES = ("east", "west")
SLOPE = 3.0  # of the generated readings


class DemoFailed(Exception):
    """A pod did not find its inputs, or the answer is wrong."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(prog="python -m examples.kubernetes", description="Pods that follow their data.")
    parser.add_argument("--nodes", type=int, default=4, help="default %(default)s")
    parser.add_argument("--shards", type=int, default=6, help="branches of the pipeline; default %(default)s")
    parser.add_argument("--rows", type=int, default=200_000, help="of the smallest shard; default %(default)s")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "kubernetes", help="default build/kubernetes")
    options = parser.parse_args(arguments)
    for name, most in (("nodes", 20), ("shards", 50), ("rows", 2_000_000)):
        if not 1 <= getattr(options, name) <= most:
            parser.error(f"--{name} is between 1 and {most}, not {getattr(options, name)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; exit code 0 if all went well, 1 if something failed, 130 if interrupted."""
    options = parse(arguments)
    sys.path.insert(0, str(ROOT / "tests" / "kubecp"))
    from kubecp_api import ControlPlaneFailed
    from kubecp_build import NoControlPlane

    work = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    try:
        stages = _run(options, work)
        _leave(stages, options)
    except (DemoFailed, ControlPlaneFailed, NoControlPlane) as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def _run(options: argparse.Namespace, work: Path) -> list[list[Task]]:
    from control_plane import running
    from entrepot_operator import crds
    from paired_nodes import Kubelet, paired_nodes

    with ExitStack() as stack:
        plane = stack.enter_context(running())
        _tell(f"a control plane at {plane.server}")
        plane.install(crds.definitions())
        stores, namespace = plane.namespace("stores"), plane.namespace("pipeline")
        names = [f"node-{chr(ord('a') + place)}" for place in range(options.nodes)]
        zones = {name: {"topology.kubernetes.io/zone": ZONES[place % 2]} for place, name in enumerate(names)}
        nodes = stack.enter_context(paired_nodes(plane, zones, stores, size="1GiB", cpu="8"))
        _tell(f"{len(nodes)} nodes, each with a store and its publisher")
        variables = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        kubelet = stack.enter_context(
            Kubelet(plane, nodes, namespace, work, program=_by_this_python, variables=variables)
        )
        stages = tasks(options.shards, options.rows)
        for stage in stages:
            for line in run_stage(plane, kubelet, stores, namespace, stage):
                _tell(line)
            if stage[0].reads:
                place_without(plane, stage)
        report = Task("report", "report", ["report", *(task.answer for task in stages[-1])])
        run_stage(plane, kubelet, stores, namespace, [report])
    _tell(f"report: a slope of {report.answer}")
    if abs(float(report.answer) - SLOPE) > 0.01:
        raise DemoFailed(f"the slope is {report.answer}, but the readings were made with {SLOPE}")
    return stages


def _by_this_python(container: dict[str, Any]) -> list[str]:
    return [sys.executable, *container["command"][1:]]


def _leave(stages: list[list[Task]], options: argparse.Namespace) -> None:
    """Write the files and print the table.

    Raises:
        DemoFailed: a pod ran on a node without its inputs.
    """
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    readers = [task for stage in stages for task in stage if task.reads]
    text = text_table(stages)
    (out / "results.txt").write_text(text + "\n", encoding="utf-8")
    (out / "results.json").write_text(
        json.dumps([asdict(task) for stage in stages for task in stage], indent=2) + "\n", encoding="utf-8"
    )
    draw(stages, [f"node-{chr(ord('a') + place)}" for place in range(options.nodes)], out / "placement.png")
    print(f"\n{text}\n")
    away = [task.name for task in readers if task.local_bytes < task.all_bytes]
    if away:
        raise DemoFailed(f"not where their data is: {', '.join(away)}")
    print(f"Every pod ran where its data is. Table and picture: {out}")
