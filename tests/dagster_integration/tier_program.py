"""A process that materializes an asset whose durable copy takes forever: ``python tier_program.py FOLDER``."""

# No `from __future__ import annotations`: Dagster looks at the annotations of assets.

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from dagster import DagsterInstance, FilesystemIOManager, IOManager, OutputContext, asset, materialize
from entrepot_dagster import EntrepotIOManager, TieredIOManager

BEGUN = "begun"


@asset
def numbers() -> np.ndarray:
    return np.arange(1000)


class Endless(IOManager):
    """A durable tier that begins to write, and never ends."""

    def __init__(self, begun: Path) -> None:
        self._begun = begun

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        self._begun.touch()
        threading.Event().wait()

    def load_input(self, context: Any) -> Any:
        raise AssertionError("nothing is read here")


def main(folder: Path) -> None:
    """Leave an older value in the durable tier, and materialize the asset."""
    with DagsterInstance.ephemeral() as other:
        files = {"io_manager": FilesystemIOManager(base_dir=str(folder / "files"))}
        materialize([numbers], instance=other, resources=files)
    tiers = TieredIOManager(store=EntrepotIOManager(), durable=Endless(folder / BEGUN), background=True)
    with DagsterInstance.get() as instance:
        materialize([numbers], instance=instance, resources={"io_manager": tiers})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
