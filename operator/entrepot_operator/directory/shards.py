"""DirectoryShard: the resources that hold a directory, and how entries are packed into them.

    NAME.head              a version that each change of the directory increases
    NAME.control           which instances there are
    NAME.NUMBER.INDEX      what an instance has published, in as many shards as it needs

Entries are packed because a resource for each would be too many: 100,000 objects of 100 stores take a few hundred
resources. An instance's shards are written by its own gateway, so gateways do not contend for them.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack
from entrepot_cluster.directory.codec import ENTRIES, NUMBER_BYTES

from entrepot_operator.kubernetes.objects import API_VERSION, MANAGED_BY, resource_path
from entrepot_operator.placement.names import GROUP

Manifest = dict[str, Any]
PLURAL = "directoryshards"
MANAGER = "entrepot-directory"
CLUSTER_LABEL = f"{GROUP}/cluster"
HEAD = "head"
CONTROL = "control"
MAX_SHARD_BYTES = 16 << 10  # of keys and values before compression; a shard with more takes no new entries
MAX_PACKED_BYTES = 640 << 10  # what the CRD allows in base64; a resource may have about 1 MiB
_MAX_UNPACKED_BYTES = 64 << 20
_FORMAT = 1
_LEVEL = 1  # of compression: IDs are random, so more of it gains nothing
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shard:
    """A shard as it was read.

    Attributes:
        name, uid: of the resource.
        version: its resourceVersion; the API server increases it with each change of any resource.
        number: whose entries these are; None: the control shard.
        index: its place among the instance's shards.
        term: of the lease under which it was written last. If two shards have the same key, the later term counts.
        entries: values by keys; those of an instance without the number at the keys' end.
        damaged: why the entries cannot be read; None: they can.
    """

    name: str
    uid: str
    version: int
    number: int | None
    index: int
    term: int
    entries: Mapping[bytes, bytes] = field(repr=False)
    damaged: str | None = None

    @property
    def size(self) -> int:
        """Bytes of keys and values."""
        return sum(len(key) + len(value) for key, value in self.entries.items())


@dataclass(frozen=True)
class Head:
    """The head as it was read.

    Attributes:
        uid: of the resource.
        version: its resourceVersion.
        floor: what is added to versions to get sequence numbers.
    """

    uid: str
    version: int
    floor: int


def is_entry(key: bytes) -> bool:
    """Whether a key belongs to an instance, whose number it ends with; the others are in the control shard."""
    return key[:1] in ENTRIES and len(key) > NUMBER_BYTES


def shard_path(namespace: str, name: str = "") -> str:
    """The API path of a shard; without a name, of all."""
    return resource_path(PLURAL, namespace, name)


def shard_name(cluster: str, number: int | None, index: int = 0) -> str:
    """The name of an instance's shard, or of the control shard."""
    return f"{cluster}.{CONTROL}" if number is None else f"{cluster}.{number:08x}.{index}"


def head_name(cluster: str) -> str:
    """The name of the head."""
    return f"{cluster}.{HEAD}"


def selector(cluster: str) -> str:
    """The label selector of all of a directory's resources."""
    return f"{CLUSTER_LABEL}={cluster}"


def labels(cluster: str) -> dict[str, str]:
    """The labels of all of a directory's resources."""
    return {CLUSTER_LABEL: cluster, MANAGED_BY: MANAGER}


def head_manifest(cluster: str, nonce: str, floor: int = 0, version: int | None = None) -> Manifest:
    """The head as it is written."""
    spec = {"cluster": cluster, "kind": "Head", "nonce": nonce, "sequenceFloor": floor}
    return _manifest(cluster, head_name(cluster), spec, version)


def shard_manifest(
    cluster: str, number: int | None, index: int, term: int, entries: Mapping[bytes, bytes], version: int | None
) -> Manifest:
    """A shard as it is written; ``version``: that of the shard that it replaces."""
    spec: Manifest = {"cluster": cluster, "kind": "Control" if number is None else "Entries", "term": term}
    if number is not None:
        spec |= {"number": number, "index": index}
    spec |= {"count": len(entries), "entries": pack(entries)}
    return _manifest(cluster, shard_name(cluster, number, index), spec, version)


def parse_head(resource: Mapping[str, Any]) -> Head:
    """Parse the head."""
    metadata = resource["metadata"]
    floor = (resource.get("spec") or {}).get("sequenceFloor") or 0
    return Head(str(metadata["uid"]), int(metadata["resourceVersion"]), int(floor))


def parse_shard(cluster: str, resource: Mapping[str, Any]) -> Shard | None:
    """Parse a resource with the directory's label; None: it is no shard. What cannot be unpacked is logged."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    name = str(metadata["name"])
    match = re.fullmatch(rf"{re.escape(cluster)}\.(?:{CONTROL}|([0-9a-f]{{8}})\.([0-9]{{1,9}}))", name)
    if match is None:
        return None
    number, index = (None, 0) if match[1] is None else (int(match[1], 16), int(match[2]))
    damaged = None
    try:
        entries = unpack(str(spec.get("entries") or ""))
    except ValueError as error:
        entries, damaged = {}, str(error)
        _log.warning(
            "the DirectoryShard %s cannot be read (%s): something other than Entrepot has written there; its gateway "
            "replaces it",
            name,
            error,
        )
    term = int(spec.get("term") or 0)
    return Shard(name, str(metadata["uid"]), int(metadata["resourceVersion"]), number, index, term, entries, damaged)


def pack(entries: Mapping[bytes, bytes]) -> str:
    """Pack entries into text."""
    flat = [part for item in sorted(entries.items()) for part in item]
    packed: bytes = msgpack.Packer().pack(flat)
    return base64.b64encode(bytes([_FORMAT]) + zlib.compress(packed, _LEVEL)).decode("ascii")


def unpack(text: str) -> dict[bytes, bytes]:
    """Unpack entries; raises ValueError."""
    if not text:
        return {}
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from None
    if raw[:1] != bytes([_FORMAT]):
        raise ValueError(f"its format is {raw[0] if raw else 'missing'}, not {_FORMAT}")
    decompressor = zlib.decompressobj()
    try:
        flat = msgpack.unpackb(decompressor.decompress(raw[1:], _MAX_UNPACKED_BYTES))
    except (zlib.error, ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if not decompressor.eof or not isinstance(flat, list) or len(flat) % 2:
        raise ValueError("it is cut off")
    if not all(isinstance(part, bytes) for part in flat):
        raise ValueError("its keys and values are not bytes")
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _manifest(cluster: str, name: str, spec: Manifest, version: int | None) -> Manifest:
    metadata: Manifest = {"name": name, "labels": labels(cluster)}
    if version is not None:
        metadata["resourceVersion"] = str(version)
    return {"apiVersion": API_VERSION, "kind": "DirectoryShard", "metadata": metadata, "spec": spec}
