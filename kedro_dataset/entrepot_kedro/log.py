"""The log of this package."""

from __future__ import annotations

import logging

# A child of Kedro's own logger, so that a project's logging configuration applies to it too. Kedro's handler takes
# messages for Rich markup by default, in which a path in brackets is an error that ends the run.
logger = logging.LoggerAdapter(logging.getLogger("kedro.entrepot"), {"markup": False})
