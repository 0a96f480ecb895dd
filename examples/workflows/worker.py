"""A worker: runs tasks on its host, each in a process of its own, which is forked so that nobody imports for long.

Reads one task per line from its standard input, as JSON, and writes one line with its outcome. It ends with its input.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from typing import Any

import numpy as np
import pyarrow as pa

from examples.workflows.pipeline import Answer, Part, column
from examples.workflows.registry import WORKFLOWS
from examples.workflows.transports import open_transport, touch


def run_task(task: dict[str, Any]) -> dict[str, Any]:
    """Run a task in this process: read its inputs, compute, write its outputs.

    Returns:
        Its outcome: ``read``, ``compute`` and ``write`` in seconds, ``bytes_read`` and ``bytes_written``, the
        ``references`` of its outputs, and ``answer``, if it has one.
    """
    begin = time.perf_counter()
    transport = open_transport(task["transport"], task["settings"])
    if "remove" in task:
        transport.remove(task["remove"])
        transport.close()
        return {}
    inputs = dict(zip(task["inputs"], transport.read(list(task["inputs"].values())), strict=True))
    for value in inputs.values():
        touch(value)
    read = time.perf_counter()
    stage = WORKFLOWS[task["workflow"]].stages[task["stage"]]
    outputs = stage.compute(Part(task["index"], task["count"], task["scale"]), inputs)
    computed = time.perf_counter()
    answer = outputs if isinstance(outputs, Answer) else None
    written = {} if isinstance(outputs, Answer) else outputs
    references = transport.write(written)
    done = time.perf_counter()
    return {
        "read": read - begin,
        "compute": computed - read,
        "write": done - computed,
        "bytes_read": sum(value.nbytes for value in inputs.values()),
        "bytes_written": sum(value.nbytes for value in written.values()),
        "references": references,
        "answer": answer,
    }


def find_imports(task: dict[str, Any]) -> list[str]:
    """What a task of this transport imports: found out by writing, reading and removing a value of each type."""
    before = set(sys.modules)
    transport = open_transport(task["transport"], task["settings"])
    values = {"array": Part(0, 1, 1.0).random(0).random(10), "table": pa.table({"column": np.arange(10)})}
    references = list(
        transport.write({f"warm-up.{os.getpid()}.{name}": value for name, value in values.items()}).values()
    )
    for value in transport.read(references):
        touch(value)
    column(values["table"], "column")
    transport.remove(references)
    transport.close()
    new = [(name, module.__spec__) for name, module in sys.modules.items() if name not in before]
    return [name for name, spec in new if spec is not None and spec.name == name]  # the others are parts of these


def _fork(task: dict[str, Any]) -> dict[str, Any]:
    """Run a task in a process of its own, and return its outcome; a failure is one, too."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            try:
                outcome = {"imports": find_imports(task)} if "warm_up" in task else run_task(task)
            except BaseException:
                outcome = {"error": traceback.format_exc()}
            with os.fdopen(write_end, "w") as pipe:
                json.dump(outcome, pipe)
        finally:
            os._exit(0)  # its memory goes with it, as a task's does; nothing of the worker's is flushed twice
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if not text:
        return {"error": f"the task's process ended with status {status} and without an outcome"}
    outcome_read: dict[str, Any] = json.loads(text)
    return outcome_read


def main() -> int:
    """Serve tasks until the end of the input."""
    pa.set_cpu_count(1)  # as many threads as there are processes would only be in each other's way
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        if "import" in task:
            for name in task["import"]:
                importlib.import_module(name)  # and the processes of tasks inherit it
            outcome: dict[str, Any] = {}
        else:
            outcome = _fork(task)
        print(json.dumps(outcome), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
