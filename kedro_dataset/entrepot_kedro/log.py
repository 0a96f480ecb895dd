"""The log of this package."""

from __future__ import annotations

import logging

# A child of Kedro's own logger, so that a project's logging configuration applies to it too. Not by
# entrepot_io.plain_log, which does the same: the hooks are imported by every Kedro command, and import nothing of ours.
logger = logging.LoggerAdapter(logging.getLogger("kedro.entrepot"), {"markup": False})
