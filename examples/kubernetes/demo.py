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

from examples.kubernetes.pipeline import Task, build_stages, place_without_injection, run_stage
from examples.kubernetes.present import draw, text_table

ROOT = Path(__file__).resolve().parents[2]
ZONES = ("east", "west")
SLOPE = 3.0  # of the generated readings


class DemoFailed(Exception):
    """A pod did not find its inputs, or the answer is wrong."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.kubernetes", description="Run a pipeline whose pods follow their data."
    )
    parser.add_argument("--nodes", type=int, default=4, help="number of nodes; default %(default)s")
    parser.add_argument("--shards", type=int, default=6, help="branches of the pipeline; default %(default)s")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the smallest shard; default %(default)s")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "kubernetes", help="output folder; default build/kubernetes"
    )
    options = parser.parse_args(arguments)
    for name, maximum in (("nodes", 20), ("shards", 50), ("rows", 2_000_000)):
        if not 1 <= getattr(options, name) <= maximum:
            parser.error(f"--{name} must be between 1 and {maximum}, not {getattr(options, name)}")
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
        _write_results(stages, options)
    except (DemoFailed, ControlPlaneFailed, NoControlPlane) as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


def _print_progress(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def _run(options: argparse.Namespace, work: Path) -> list[list[Task]]:
    from control_plane import create_control_plane
    from entrepot_operator import crds
    from paired_nodes import Kubelet, paired_nodes

    with ExitStack() as stack:
        control_plane = stack.enter_context(create_control_plane())
        _print_progress(f"a control plane at {control_plane.server}")
        control_plane.install(crds.definitions())
        stores, namespace = control_plane.namespace("stores"), control_plane.namespace("pipeline")
        names = [f"node-{chr(ord('a') + index)}" for index in range(options.nodes)]
        zones = {name: {"topology.kubernetes.io/zone": ZONES[index % 2]} for index, name in enumerate(names)}
        nodes = stack.enter_context(paired_nodes(control_plane, zones, stores, size="1GiB", cpu="8"))
        _print_progress(f"{len(nodes)} nodes, each with a store and its publisher")
        variables = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        kubelet = stack.enter_context(
            Kubelet(control_plane, nodes, namespace, work, program=_local_command, variables=variables)
        )
        stages = build_stages(options.shards, options.rows)
        for stage in stages:
            for line in run_stage(control_plane, kubelet, stores, namespace, stage):
                _print_progress(line)
            if stage[0].reads:
                place_without_injection(control_plane, stage)
        report = Task("report", "report", ["report", *(task.answer for task in stages[-1])])
        run_stage(control_plane, kubelet, stores, namespace, [report])
    _print_progress(f"report: the slope is {report.answer}")
    if abs(float(report.answer) - SLOPE) > 0.01:
        raise DemoFailed(f"the slope is {report.answer}, but the readings were generated with {SLOPE}")
    return stages


def _local_command(container: dict[str, Any]) -> list[str]:
    return [sys.executable, *container["command"][1:]]


def _write_results(stages: list[list[Task]], options: argparse.Namespace) -> None:
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
    draw(stages, [f"node-{chr(ord('a') + index)}" for index in range(options.nodes)], out / "placement.png")
    print(f"\n{text}\n")
    remote_readers = [task.name for task in readers if task.local_bytes < task.all_bytes]
    if remote_readers:
        raise DemoFailed(f"pods that ran away from their data: {', '.join(remote_readers)}")
    print(f"Every pod ran where its data is. Table and picture: {out}")
