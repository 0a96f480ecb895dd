"""The demo's transports: each orchestrator with Entrepot and with the transports commonly used there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HOSTS = ("airflow", "dagster", "kedro")
ENTREPOT = "entrepot"


@dataclass(frozen=True)
class Transport:
    """One way to pass values between tasks of one orchestrator.

    Attributes:
        host: one of ``HOSTS``.
        name: short, unique within the orchestrator.
        label: for the table and the chart.
        what: one line on what it does with a value.
    """

    host: str
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


def chosen(hosts: Iterable[str] | None, names: Iterable[str] | None) -> list[Transport]:
    """The transports of these orchestrators with these names, in the order of ``TRANSPORTS``.

    Args:
        hosts: ``None`` for all.
        names: ``None`` for all.

    Raises:
        ValueError: an unknown name, or nothing is left; the message lists what exists.
    """
    hosts = list(HOSTS if hosts is None else hosts)
    every = list(dict.fromkeys(transport.name for transport in TRANSPORTS))
    names = list(every if names is None else names)
    for given, known, kind in ((hosts, list(HOSTS), "host"), (names, every, "transport")):
        for wrong in given:
            if wrong not in known:
                raise ValueError(f"there is no {kind} {wrong!r}; there are {', '.join(known)}")
    found = [transport for transport in TRANSPORTS if transport.host in hosts and transport.name in names]
    if not found:
        raise ValueError(f"none of the hosts {', '.join(hosts)} has a transport {' or '.join(names)}")
    return found
