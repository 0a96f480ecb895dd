"""Errors of the directory that only a gateway sees; ``DirectoryUnavailable`` of :mod:`entrepot` reaches tasks, too."""

from __future__ import annotations

from entrepot.errors import EntrepotError


class ClusterMismatch(EntrepotError):
    """The directory belongs to another cluster than the URL names."""

    code = "cluster_mismatch"
    short_code = "E502"


class DirectoryDamaged(EntrepotError):
    """An entry of the directory cannot be decoded: something else has written there. Other entries are unaffected."""

    code = "directory_damaged"
    short_code = "E503"


class InstanceForgotten(EntrepotError):
    """The directory no longer has this registration: register again, and publish everything again.

    The lease ended while the gateway was stopped or could not reach the directory, or the directory was emptied,
    restarted without its data, or restored from a backup.
    """

    code = "instance_forgotten"
    short_code = "E504"


class InstanceSuperseded(EntrepotError):
    """Another gateway has registered the same instance since; this one must stop serving it."""

    code = "instance_superseded"
    short_code = "E505"
