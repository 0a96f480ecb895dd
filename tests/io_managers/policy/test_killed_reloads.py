"""Killing a reload at any step leaves a consistent state, from which the next reload continues."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from entrepot import raw_objects
from entrepot_policy.state import lineage
from entrepot_policy.state.events import read_events
from entrepot_policy.state.lineage import ObjectRef

READER = """
import os, signal, sys
import entrepot
from entrepot_io.values import get_value
from entrepot_policy.state import generations
from entrepot_policy.rules.loader import parse_policy
from entrepot_policy.runtime import PolicyRuntime
from entrepot_io.reference import Reference
from entrepot_checkpoints import reader
from entrepot_checkpoints.storage import chunks
from entrepot import raw_objects
import json

address, text, data, place = sys.argv[1:]
die = lambda *rest, **more: os.kill(os.getpid(), signal.SIGKILL)
real_load = reader.load_manifest
loads = []

def second_load(*rest, **more):
    loads.append(1)
    return die() if len(loads) == 2 else real_load(*rest, **more)

if place == "manifest":
    reader.read_manifest = die
elif place == "chunk":
    chunks.ChunkFolder.read_into = die
elif place == "before seal":
    raw_objects.RawObjectWriter.seal = die
elif place == "after seal":
    entrepot.Store.set_name = die
elif place == "lineage":
    reader.load_manifest = second_load
elif place == "generation":
    generations.record_restored = die
reference = Reference.parse(json.loads(data))
runtime = PolicyRuntime(parse_policy(text, "test.yaml", {}), scope="tests", address=address)
value = runtime.read(reference, lambda: get_value(reference, address=address))
print(int(value.sum()))
"""
# Steps at which a reader is killed; they differ in what is left of the object and whether its new generation is known.
PLACES = ["manifest", "chunk", "before seal", "after seal", "lineage", "generation"]


@pytest.mark.parametrize("place", PLACES)
def test_a_reader_that_is_killed(new_orchestrator: Callable[..., Any], root: str, place: str) -> None:
    text = f"version: 1\ncheckpoint: {{target: '{root}/{{run}}', rules: [{{match: '*'}}]}}\n"
    orchestrator = new_orchestrator(text, {"one": (lambda: np.arange(50_000),)})
    orchestrator.run()
    reference = orchestrator.references["one"]
    store, ref = orchestrator.store(), ObjectRef.of(orchestrator.references["one"])
    for oid in (*lineage.page_ids(store, ref), ref.id):
        raw_objects.discard(store, oid)
    data = json.dumps(reference.to_dict())

    def read(where: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", READER, store.address, text, data, where]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert read(place).returncode == -signal.SIGKILL
    again = read("nowhere")
    assert (again.returncode, again.stdout) == (0, f"{sum(range(50_000))}\n"), again.stderr
    assert (orchestrator.value("one") == np.arange(50_000)).all()
    record = lineage.read(store, ref)
    assert record is not None
    assert record.task.name == "one"
    assert len(store.list("node:one")) == 1
    kinds = [event.kind for event in read_events(orchestrator.runtime.log.path)]
    assert kinds.count("reloaded") == 1
    assert kinds.count("object_lost") == 2


def test_many_readers_at_once_without_a_kill(new_orchestrator: Callable[..., Any], root: str) -> None:
    """All readers get the value. Also the control for the test above: a reader that is not killed passes all those
    steps."""
    text = f"version: 1\ncheckpoint: {{target: '{root}/{{run}}', rules: [{{match: '*'}}]}}\n"
    orchestrator = new_orchestrator(text, {"one": (lambda: np.arange(50_000),)})
    orchestrator.run()
    raw_objects.discard(orchestrator.store(), orchestrator.references["one"].id)
    data = json.dumps(orchestrator.references["one"].to_dict())
    command = [sys.executable, "-c", READER, orchestrator.store().address, text, data, "nowhere"]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [reader.communicate(timeout=60)[0] for reader in readers]
    assert outputs == [f"{sum(range(50_000))}\n"] * 3
    assert [reader.returncode for reader in readers] == [0] * 3
