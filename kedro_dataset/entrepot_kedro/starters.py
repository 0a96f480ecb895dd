"""Starters for ``kedro new``, registered by the entry point ``kedro.starters``."""

from __future__ import annotations

from pathlib import Path

from kedro.framework.cli.starters import KedroStarterSpec

starters = [KedroStarterSpec("entrepot", str(Path(__file__).with_name("starter")))]
