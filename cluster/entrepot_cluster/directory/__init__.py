"""The directory of a cluster: which stores there are, and where published objects are."""

from __future__ import annotations

from entrepot_cluster.directory.directory import Directory
from entrepot_cluster.directory.errors import (
    ClusterMismatch,
    DirectoryDamaged,
    InstanceForgotten,
    InstanceSuperseded,
)
from entrepot_cluster.directory.model import (
    NO_SESSION,
    Found,
    Instance,
    InstanceChange,
    Life,
    NameBinding,
    NameEntry,
    Page,
    Place,
    PlaceEntry,
    SessionEntry,
    SessionPlace,
    session_reference,
)
from entrepot_cluster.directory.opening import open_directory
from entrepot_cluster.directory.registration import Registration
from entrepot_cluster.directory.watch import InstanceWatch

__all__ = [
    "NO_SESSION",
    "ClusterMismatch",
    "Directory",
    "DirectoryDamaged",
    "Found",
    "Instance",
    "InstanceChange",
    "InstanceForgotten",
    "InstanceSuperseded",
    "InstanceWatch",
    "Life",
    "NameBinding",
    "NameEntry",
    "Page",
    "Place",
    "PlaceEntry",
    "Registration",
    "SessionEntry",
    "SessionPlace",
    "open_directory",
    "session_reference",
]
