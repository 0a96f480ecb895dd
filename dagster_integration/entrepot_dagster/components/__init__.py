"""Entrepot as a component of a `dg` project: `dg scaffold defs entrepot_dagster.components.EntrepotComponent store`."""

from __future__ import annotations

from entrepot_dagster.components.store import DurableFiles as DurableFiles
from entrepot_dagster.components.store import EntrepotComponent as EntrepotComponent

__all__ = ["DurableFiles", "EntrepotComponent"]
