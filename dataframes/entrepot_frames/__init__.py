"""Dataframe programs on several ranks, which exchange rows through the store.

    from entrepot_frames import Executor

    with Executor(parallelism=4) as executor:
        totals = lambda env: env.read_parquet("orders").groupby("customer").agg({"price": "sum"})
        executor.run(lambda env: env.put("totals", totals(env))).result()

Importing this package imports no dataframe library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy_imports import lazy_names

if TYPE_CHECKING:
    from entrepot_frames.communicators.communicator import Communicator as Communicator
    from entrepot_frames.env import Env as Env
    from entrepot_frames.errors import ProgramsDiffer as ProgramsDiffer
    from entrepot_frames.errors import RankFailed as RankFailed
    from entrepot_frames.errors import TooFewWorkers as TooFewWorkers
    from entrepot_frames.executors.executor import Executor as Executor
    from entrepot_frames.frame import Frame as Frame
    from entrepot_frames.interchange.conversion import from_collection as from_collection
    from entrepot_frames.interchange.conversion import to_collection as to_collection

_MODULES = {
    "Communicator": "communicators.communicator",
    "Env": "env",
    "Executor": "executors.executor",
    "Frame": "frame",
    "ProgramsDiffer": "errors",
    "RankFailed": "errors",
    "TooFewWorkers": "errors",
    "from_collection": "interchange.conversion",
    "to_collection": "interchange.conversion",
}
_MODULES = {name: f"entrepot_frames.{module}" for name, module in _MODULES.items()}
__all__ = [
    "Communicator",
    "Env",
    "Executor",
    "Frame",
    "ProgramsDiffer",
    "RankFailed",
    "TooFewWorkers",
    "from_collection",
    "to_collection",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
