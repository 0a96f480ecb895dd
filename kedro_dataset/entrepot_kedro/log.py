"""The log of this package."""

from __future__ import annotations

import logging

# A child of Kedro's own logger, so that a project's logging configuration applies to it too.
logger = logging.getLogger("kedro.entrepot")
