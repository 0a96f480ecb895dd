"""Trying a node again whose function raised, by the rules of ``task_failed``, under any of Kedro's runners.

Kedro gives a hook no say about a node that failed, but it calls one right before the node runs, in the process and the
thread where it runs. There the attempt's ``Node.run`` is put in place of the node's own, for this one call. Inputs are
loaded anew for each further attempt, because the function may have changed them before it raised.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

from kedro.pipeline.node import Node

from entrepot_kedro.binding import Binding


def retry(binding: Binding, node: Node, catalog: Any, loaded: dict[str, Any]) -> None:
    """Have the next ``node.run`` try again as the policy says.

    A node whose function is a generator is left as it is: it fails when its chunks are saved, when some are there
    already.

    Args:
        binding: asked about each failure.
        node: that runs next.
        catalog: to load its inputs from.
        loaded: its inputs, as they were loaded.
    """
    if inspect.isgeneratorfunction(node.func):
        return
    # In the object alone, and only until it is called: the node goes back to the runner's process as it came.
    node.__dict__["run"] = _Attempts(binding, node, catalog, dict(loaded))


def leave(node: Node) -> None:
    """Take back what :func:`retry` did, if ``node.run`` was not called."""
    node.__dict__.pop("run", None)


class _Attempts:
    def __init__(
        self,
        binding: Binding,
        node: Node,
        catalog: Any,
        loaded: dict[str, Any],
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._binding = binding
        self._node = node
        self._catalog = catalog
        self._loaded = loaded
        self._sleep = sleep

    def __call__(self, inputs: dict[str, Any] | None = None) -> dict[str, Any]:
        leave(self._node)
        number = 1
        while True:
            try:
                return self._node.run(inputs)
            except Exception as error:
                said = self._binding.task_failed(self._node, number, error)
                if not said.again:
                    raise
            self._sleep(said.delay)
            number += 1
            inputs = self._anew(inputs)

    def _anew(self, inputs: dict[str, Any] | None) -> dict[str, Any] | None:
        if inputs is None:
            return None
        for name, value in inputs.items():
            # What a hook put in its place stays; Kedro asks hooks once.
            if name in self._loaded and self._loaded[name] is value:
                inputs[name] = self._loaded[name] = self._catalog.load(name)
        return inputs
