"""Data pipes: programs hand tables to each other while they run, under names that look like files (``db://orders``).

    with entrepot_pipes.open_export("db://orders") as export:  # in one program
        export.write(table)

    with entrepot_pipes.open_import("db://orders") as orders:  # in another, at the same time
        for batch in orders: ...

Importing this package imports none of its modules; each is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy_imports import lazy_names

if TYPE_CHECKING:
    from entrepot_pipes.export_end import Export as Export
    from entrepot_pipes.import_end import Import as Import
    from entrepot_pipes.names import PipeName as PipeName
    from entrepot_pipes.pipe import open_export as open_export
    from entrepot_pipes.pipe import open_import as open_import
    from entrepot_pipes.text.dialect import Dialect as Dialect

_HOME = {
    "Dialect": "entrepot_pipes.text.dialect",
    "Export": "export_end",
    "Import": "import_end",
    "PipeName": "names",
    "open_export": "pipe",
    "open_import": "pipe",
}
__all__ = ["Dialect", "Export", "Import", "PipeName", "open_export", "open_import"]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
