"""Compression of what is sent, where it makes the transfer faster: on links that are slower than the codec.

The codecs are those of PyArrow, which both gateways need; without it, everything is sent as it is. PyArrow is imported
when the first piece is worth trying, so gateways with fast links never load it.
"""

from __future__ import annotations

import importlib.util
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from entrepot import _core
from entrepot.errors import CorruptData, InvalidArgument

if TYPE_CHECKING:
    from entrepot_cluster.transport.links import Link

OFF, AUTO = "off", "auto"
SETTINGS = (AUTO, OFF)
MAX_UNPACKED_BYTES = 16 << 20
# Codec, reserved, bytes and CRC-32C of what was packed: the first part of the meta of a frame with a packed payload.
_PREFIX = struct.Struct("<B3xII")
PREFIX_BYTES = _PREFIX.size

WORTH = 1.15  # how many times as fast as sending bytes as they are it must be to send packed ones
KNOWN_AFTER_BYTES = 2 << 20  # that the peer has confirmed: before, the kernel has seen too little of the link
# Bytes per second of a connection. On a faster one, not even data that shrink well arrive earlier: unpacking and
# another copy take as long as is gained.
SLOW_LINK = 250e6
PROBE_EVERY = 32  # pieces between two trials of all codecs


class Codec(IntEnum):
    """What a payload is packed with, as numbered on the wire."""

    LZ4 = 1
    ZSTD = 2


_NAMES = {Codec.LZ4: "lz4_raw", Codec.ZSTD: "zstd"}


def supported() -> list[int]:
    """Numbers of the codecs that this process can use, without loading them; for the handshake."""
    return [codec.value for codec in Codec] if importlib.util.find_spec("pyarrow") else []


def check_setting(setting: str) -> str:
    """Return the setting.

    Raises:
        InvalidArgument: it is none of :data:`SETTINGS`.
    """
    if setting not in SETTINGS:
        raise InvalidArgument(f"the compression {setting!r} is unknown: it is one of {', '.join(SETTINGS)}")
    return setting


@cache
def _codec(codec: Codec) -> Any:
    import pyarrow

    level = 1 if codec is Codec.ZSTD else None
    return pyarrow.Codec(_NAMES[codec], compression_level=level)


@dataclass(slots=True)
class _Measured:
    """Of a codec, on this connection's data.

    Attributes:
        ratio: packed bytes per byte.
        speed: bytes per second that are packed.
    """

    ratio: float
    speed: float

    def rate(self, link_rate: float) -> float:
        """Bytes per second that arrive if this codec is used: packing and sending overlap."""
        return min(self.speed, link_rate / self.ratio)


class PackingSender:
    """Decides for one connection, piece by piece, whether to send it packed. Used by the thread that sends.

    ```
             trial: some codec would be 1.15 times as fast
      as is ─────────────────────────────────────────────▶ packed
        ▲                                                     │
        └── none is any more (a trial) ───────────────────────┘
    ```

    A trial is made with each 32nd piece, and as soon as the link is half as fast as at the last one: at first, sends
    end in the kernel's buffers.

    The link's rate is the kernel's (``tcpi_delivery_rate``), which is of this connection: several connections share
    the link, and the cores that pack for them.

    Args:
        link: the connection.
        codecs: numbers of those that both ends support.
    """

    def __init__(self, link: Link, codecs: Sequence[int]) -> None:
        self._link = link
        self._codecs = [codec for codec in Codec if codec in codecs]
        self._chosen: Codec | None = None
        self._pieces_to_trial = 0
        self._rate_at_trial = 0.0

    def pack(self, views: Sequence[memoryview], nbytes: int, crc: int) -> tuple[bytes, memoryview] | None:
        """Pack a piece, if that makes it arrive earlier.

        Args:
            views: its bytes.
            nbytes: how many these are.
            crc: their CRC-32C.

        Returns:
            the prefix of the frame's meta, and its payload; None: it is to be sent as it is.
        """
        rate = self._slow_rate(nbytes)
        if rate is None:
            return None  # the choice stays: a burst into empty buffers looks like a fast link
        joined = views[0] if len(views) == 1 else memoryview(b"".join(views))
        if self._pieces_to_trial == 0 or rate < self._rate_at_trial / 2:
            self._pieces_to_trial, self._rate_at_trial = PROBE_EVERY, rate
            return self._try_all(joined, rate, crc)
        self._pieces_to_trial -= 1
        if self._chosen is None:
            return None
        packed, _ = _packed(self._chosen, joined)
        return None if packed.nbytes >= nbytes else (_PREFIX.pack(self._chosen, nbytes, crc), packed)

    def may_pack(self, nbytes: int) -> bool:
        """Whether :meth:`pack` would look at a piece of so many bytes at all."""
        return self._slow_rate(nbytes) is not None

    def _slow_rate(self, nbytes: int) -> float | None:
        """The link's rate in bytes per second, if it may be slower than a codec; None: pieces are sent as they are."""
        if not self._codecs or not 0 < nbytes <= MAX_UNPACKED_BYTES:
            return None
        rate = self._link.delivery_rate(KNOWN_AFTER_BYTES)
        return None if rate is None or rate >= SLOW_LINK else rate

    def _try_all(self, joined: memoryview, rate: float, crc: int) -> tuple[bytes, memoryview] | None:
        best, best_rate = None, WORTH * rate
        for codec in self._codecs:
            packed, measured = _packed(codec, joined)
            if measured.rate(rate) > best_rate:
                best, best_rate = (codec, packed), measured.rate(rate)
        if best is None:
            self._chosen = None
            return None
        self._chosen = best[0]
        return _PREFIX.pack(self._chosen, joined.nbytes, crc), best[1]


def _packed(codec: Codec, data: memoryview) -> tuple[memoryview, _Measured]:
    begin = time.perf_counter()
    packed = memoryview(_codec(codec).compress(data)).cast("B")
    seconds = max(time.perf_counter() - begin, 1e-9)
    return packed, _Measured(max(packed.nbytes, 1) / data.nbytes, data.nbytes / seconds)


def unpacked_bytes(meta: bytes | bytearray | memoryview) -> int:
    """How many bytes the packed payload of a frame with this meta becomes.

    Raises:
        CorruptData: the prefix is cut off, or exceeds the limit.
    """
    if len(meta) < PREFIX_BYTES:
        raise CorruptData(f"the description of a packed payload has {len(meta)} bytes; at least {PREFIX_BYTES}")
    _, nbytes, _ = _PREFIX.unpack_from(meta)
    if not 0 < nbytes <= MAX_UNPACKED_BYTES:
        raise CorruptData(f"the peer announced {nbytes} packed bytes in a frame; 1 to {MAX_UNPACKED_BYTES}")
    return int(nbytes)


def unpack(meta: bytes | bytearray | memoryview, payload: memoryview) -> memoryview:
    """The bytes that were packed, checked.

    Args:
        meta: of the frame; begins with the prefix.
        payload: of the frame.

    Raises:
        CorruptData: they are not what was packed, or the codec is unknown.
    """
    nbytes = unpacked_bytes(meta)
    number, _, expected = _PREFIX.unpack_from(meta)
    try:
        codec = Codec(number)
        unpacked = memoryview(_codec(codec).decompress(payload, decompressed_size=nbytes)).cast("B")
    except (ValueError, OSError, ImportError) as error:  # ValueError: Codec's, and ArrowInvalid
        raise CorruptData(f"a payload packed with codec {number} cannot be unpacked: {error}") from error
    crc = _core.crc32c(unpacked)
    if crc != expected:
        raise CorruptData(
            f"a packed payload was unpacked to bytes with the CRC-32C {crc:08x}, and {expected:08x} was sent"
        )
    return unpacked
