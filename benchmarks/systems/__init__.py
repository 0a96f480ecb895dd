"""The systems to measure; see ``base`` for their interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.systems.base import ARRAY, BYTES, TABLE, NoServer, Server
from benchmarks.systems.entrepot import EntrepotServer, WarmEntrepotServer
from benchmarks.systems.lmdb import LmdbServer
from benchmarks.systems.plasma import PlasmaServer
from benchmarks.systems.ray import RayServer
from benchmarks.systems.redis import RedisServer
from benchmarks.systems.vineyard import VineyardServer

ALL_KINDS = (BYTES, ARRAY, TABLE)


@dataclass(frozen=True)
class System:
    """One system.

    Attributes:
        name: in the tables.
        module, client: location of its client class, for workers.
        server: creates its server.
        environment: the file in ``benchmarks/peers`` from which its interpreter is created; empty: the project's own.
        kinds: the kinds of values that it is measured with.
        quiet: whether it is inactive while not in use; if not, it is stopped while others are measured.
        many: whether it is measured with many small objects.
        about: what readers must know to judge its figures.
    """

    name: str
    module: str
    client: str
    server: Callable[[], Server]
    environment: str = ""
    kinds: tuple[str, ...] = ALL_KINDS
    quiet: bool = True
    many: bool = True
    about: str = ""


SYSTEMS = [
    System(
        "entrepot",
        "benchmarks.systems.entrepot",
        "EntrepotClient",
        EntrepotServer,
        about="default settings: 64 MiB are warmed before use, and what was used lately is kept",
    ),
    System(
        "entrepot, all warm",
        "benchmarks.systems.entrepot",
        "EntrepotClient",
        WarmEntrepotServer,
        kinds=(ARRAY, TABLE),
        many=False,
        about="--warm-bytes equal to its capacity",
    ),
    System(
        "plasma",
        "benchmarks.systems.plasma",
        "PlasmaClient",
        PlasmaServer,
        "plasma",
        about="put and get of objects; tables as an Arrow stream in a created object",
    ),
    System(
        "plasma raw",
        "benchmarks.systems.plasma",
        "PlasmaRawClient",
        PlasmaServer,
        "plasma",
        kinds=(BYTES,),
        about="put_raw_buffer and get_buffers: nothing is serialized, and a get returns a buffer instead of bytes",
    ),
    System("vineyard", "benchmarks.systems.vineyard", "VineyardClient", VineyardServer, "vineyard"),
    System(
        "ray",
        "benchmarks.systems.ray",
        "RayClient",
        RayServer,
        "ray",
        quiet=False,
        about="its processes use CPU even when idle, so it runs only during its own turns",
    ),
    System(
        "lmdb",
        "benchmarks.systems.lmdb",
        "LmdbClient",
        LmdbServer,
        "lmdb",
        about="on tmpfs, sync=False, writemap=True: no durability; arrays and tables read in place",
    ),
    System(
        "redis",
        "benchmarks.systems.redis",
        "RedisClient",
        RedisServer,
        "redis",
        about="unix socket, no persistence; arrays as raw bytes, tables as Arrow streams",
    ),
    System("pickle 5 on tmpfs", "benchmarks.systems.files", "PickleClient", NoServer),
    System(
        "arrow on tmpfs",
        "benchmarks.systems.files",
        "ArrowClient",
        NoServer,
        kinds=(ARRAY, TABLE),
        many=False,
        about="IPC files, tensors; read through a memory map",
    ),
    System(
        "limit: row in a map",
        "benchmarks.systems.row",
        "LookupClient",
        NoServer,
        kinds=(BYTES,),
        about="a dictionary and a slice of a memory map within one process; not a store",
    ),
]
ENTREPOT = SYSTEMS[0]


def by_name(names: list[str]) -> list[System]:
    """Look up systems by name.

    Raises:
        ValueError: an unknown name; the message lists the known ones.
    """
    systems = {system.name: system for system in SYSTEMS}
    for name in names:
        if name not in systems:
            raise ValueError(f"there is no system {name!r} here; there are: {', '.join(systems)}")
    return [systems[name] for name in names]
