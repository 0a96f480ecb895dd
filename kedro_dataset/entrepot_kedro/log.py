"""The log of this package."""

from __future__ import annotations

from entrepot_io.plain_log import plain_logger

# A child of Kedro's own logger, so that a project's logging configuration applies to it too.
logger = plain_logger("kedro.entrepot")
