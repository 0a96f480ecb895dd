"""Measures every save and load of the catalog, with Kedro's own hooks."""

from __future__ import annotations

import threading
from typing import Any

from kedro.framework.hooks import hook_impl

from examples.flights.measure.meter import Direction, Meter

_PARAMETERS = ("params:", "parameters")


class TransportTimes:
    """Measures the time between the hooks before and after each save and load."""

    def __init__(self) -> None:
        self._started = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # processes started by Kedro measure their own calls

    def __setstate__(self, _state: dict[str, Any]) -> None:
        self._started = threading.local()

    def _begin(self, direction: Direction, dataset_name: str) -> None:
        if not dataset_name.startswith(_PARAMETERS):
            self._started.start_state = Meter.start(direction, dataset_name)

    def _end(self, direction: Direction, dataset_name: str) -> None:
        if not dataset_name.startswith(_PARAMETERS):
            Meter.from_environment().finish(direction, dataset_name, self._started.start_state)

    # `before` hooks run last and `after` hooks first, so that other hooks are not measured.
    @hook_impl(trylast=True)
    def before_dataset_saved(self, dataset_name: str) -> None:
        self._begin("write", dataset_name)

    @hook_impl(tryfirst=True)
    def after_dataset_saved(self, dataset_name: str) -> None:
        self._end("write", dataset_name)

    @hook_impl(trylast=True)
    def before_dataset_loaded(self, dataset_name: str) -> None:
        self._begin("read", dataset_name)

    @hook_impl(tryfirst=True)
    def after_dataset_loaded(self, dataset_name: str) -> None:
        self._end("read", dataset_name)
