"""The demo's transports: each orchestrator with Entrepot and with the transports commonly used there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ORCHESTRATORS = ("airflow", "dagster", "kedro")
ENTREPOT = "entrepot"


@dataclass(frozen=True)
class Transport:
    """One way to pass values between tasks of one orchestrator.

    Attributes:
        orchestrator: one of ``ORCHESTRATORS``.
        name: short, unique within the orchestrator.
        label: for the table and the chart.
        what: one line on what it does with a value.
    """

    orchestrator: str
    name: str
    label: str
    what: str

    @property
    def is_entrepot(self) -> bool:
        return self.name == ENTREPOT


TRANSPORTS = (
    Transport("airflow", ENTREPOT, "Entrepot", "entrepot_airflow.EntrepotXComBackend"),
    Transport(
        "airflow", "objectstorage", "object storage XCom", "XComObjectStorageBackend on file://, threshold 4096 bytes"
    ),
    Transport("dagster", ENTREPOT, "Entrepot", "entrepot_dagster.EntrepotIOManager"),
    Transport("dagster", "files", "filesystem IO manager", "FilesystemIOManager, pickle files"),
    Transport("kedro", ENTREPOT, "Entrepot", "entrepot_kedro.EntrepotDataset"),
    Transport("kedro", "pickle", "pickle datasets", "pickle.PickleDataset"),
    Transport(
        "kedro", "memory", "SharedMemoryDataset", "the default of ParallelRunner: pickles through a manager process"
    ),
)


def select_transports(orchestrators: Iterable[str] | None, names: Iterable[str] | None) -> list[Transport]:
    """The transports of these orchestrators with these names, in the order of ``TRANSPORTS``.

    Args:
        orchestrators: ``None`` for all.
        names: ``None`` for all.

    Raises:
        ValueError: an unknown name, or nothing is left; the message lists what exists.
    """
    orchestrators = list(ORCHESTRATORS if orchestrators is None else orchestrators)
    all_names = list(dict.fromkeys(transport.name for transport in TRANSPORTS))
    names = list(all_names if names is None else names)
    for requested, valid_names, kind in (
        (orchestrators, list(ORCHESTRATORS), "orchestrator"),
        (names, all_names, "transport"),
    ):
        for unknown in requested:
            if unknown not in valid_names:
                raise ValueError(f"unknown {kind} {unknown!r}; available: {', '.join(valid_names)}")
    selected = [
        transport for transport in TRANSPORTS if transport.orchestrator in orchestrators and transport.name in names
    ]
    if not selected:
        raise ValueError(f"none of the orchestrators {', '.join(orchestrators)} has a transport {' or '.join(names)}")
    return selected
