"""The package's log, with the handler that Kedro installs by default."""

from __future__ import annotations

import io
import logging

from entrepot_kedro.log import logger
from kedro.logging import RichHandler
from rich.console import Console


def test_paths_in_brackets_are_not_markup() -> None:
    out = io.StringIO()
    handler = RichHandler(console=Console(file=out, width=200))
    kedro_logger = logging.getLogger("kedro.entrepot")
    kedro_logger.addHandler(handler)
    try:
        logger.warning("Node 'load' failed: %s", "cannot read [/data/orders.csv] of [bold]")
    finally:
        kedro_logger.removeHandler(handler)
    assert "cannot read [/data/orders.csv] of [bold]" in out.getvalue()
