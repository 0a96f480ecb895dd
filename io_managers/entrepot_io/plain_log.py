"""Loggers whose messages are shown as they are, whatever handler shows them."""

from __future__ import annotations

import logging
from typing import Any


def plain_logger(name: str) -> logging.LoggerAdapter[Any]:
    """Return the logger of this name, for messages with brackets in them.

    Kedro's handler, which it adds to the root logger of every process that imports it, takes messages for Rich markup.
    A path in brackets is an error there, which would end the task: also a task of Airflow that runs a node of Kedro.
    """
    return logging.LoggerAdapter(logging.getLogger(name), {"markup": False})
