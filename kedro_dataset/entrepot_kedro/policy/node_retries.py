"""Retrying a node whose function raised, by the rules of ``task_failed``, under any of Kedro's runners.

Kedro's hooks cannot influence what happens to a failed node, but one of them is called right before the node runs, in
the same process and thread. It replaces the node's ``run`` by a retrying version for that one call. Inputs are reloaded
for each further attempt, because the function may have modified them before it raised.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

from kedro.pipeline.node import Node

from entrepot_kedro.compat.nodes import replace_run, restore_run
from entrepot_kedro.policy.policy_runtime import PolicyBinding


def enable_retries(binding: PolicyBinding, node: Node, catalog: Any, loaded: dict[str, Any]) -> None:
    """Make the next ``node.run`` retry as the policy says.

    Nodes whose function is a generator are left alone: they fail while their chunks are being saved, when some of the
    output already exists.

    Args:
        binding: decides about each failure.
        node: the node that is about to run.
        catalog: catalog to load its inputs from.
        loaded: its inputs, as loaded.
    """
    if inspect.isgeneratorfunction(node.func):
        return
    # Set on the instance only, and only until it is called: the node returns to the runner's process unchanged.
    replace_run(node, _RetryingRun(binding, node, catalog, dict(loaded)))


class _RetryingRun:
    def __init__(
        self,
        binding: PolicyBinding,
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
        restore_run(self._node)
        number = 1
        while True:
            try:
                return self._node.run(inputs)
            except Exception as error:
                decision = self._binding.task_failed(self._node, number, error)
                if not decision.again:
                    raise
            self._sleep(decision.delay)
            number += 1
            inputs = self._reload_inputs(inputs)

    def _reload_inputs(self, inputs: dict[str, Any] | None) -> dict[str, Any] | None:
        if inputs is None:
            return None
        for name, value in inputs.items():
            # Keep values that a hook substituted; Kedro asks hooks only once.
            if name in self._loaded and self._loaded[name] is value:
                inputs[name] = self._loaded[name] = self._catalog.load(name)
        return inputs
