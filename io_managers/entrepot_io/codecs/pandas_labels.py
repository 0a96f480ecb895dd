"""Time zones, frequencies and labels of pandas objects."""

from __future__ import annotations

import datetime as dt
import sys
import zoneinfo
from typing import Any

import pandas as pd
from entrepot.codec import Decoder, Encoder, Node
from entrepot.errors import CorruptData, UnsupportedType

from entrepot_io.codecs.validation import damaged, translate_decode_errors


def encode_zone(zone: Any, encoder: Encoder) -> Node:
    """Encode a time zone: by kind and key if that restores the same zone, else with any codec that accepts it."""
    described: list[Any] | None = None
    if zone is dt.timezone.utc:
        described = ["utc"]
    elif type(zone) is dt.timezone:
        described = ["fixed", zone.utcoffset(None)]
    elif type(zone) is zoneinfo.ZoneInfo and zone.key is not None:
        described = ["zoneinfo", zone.key]
    elif type(zone).__module__.partition(".")[0] == "pytz":
        key = getattr(zone, "zone", None)
        described = ["pytz", key] if key else None
    if described is not None:
        restored = _restore_zone(described)
        if restored == zone and type(restored) is type(zone) and repr(restored) == repr(zone):
            return encoder.encode(described)
    return encoder.encode(zone)


def decode_zone(node: Node, decoder: Decoder) -> Any:
    """Decode the zone that :func:`encode_zone` encoded."""
    described = decoder.decode(node)
    if isinstance(described, dt.tzinfo):
        return described
    try:
        with translate_decode_errors(node):
            zone = _restore_zone(described)
    except CorruptData as error:
        if isinstance(error.__cause__, KeyError):  # zoneinfo and pytz raise KeyError for an unknown key
            raise UnsupportedType(
                f"the time zone {described!r} is unknown on this machine: install or update tzdata"
            ) from error
        raise
    if zone is None:
        raise damaged(node, f"{described!r} is not a time zone")
    return zone


def _restore_zone(described: list[Any]) -> Any:
    kind = described[0]
    if kind == "utc":
        return dt.timezone.utc
    if kind == "fixed":
        return dt.timezone(described[1])
    if kind == "zoneinfo":
        return zoneinfo.ZoneInfo(described[1])
    if kind == "pytz":
        try:
            import pytz
        except ImportError:  # pandas 3 no longer brings it along: the same zone by zoneinfo
            return zoneinfo.ZoneInfo(described[1])
        return pytz.timezone(described[1])
    return None


def encode_freq(freq: Any, encoder: Encoder) -> Node:
    """Encode a frequency: its alias if pandas parses that to the same offset, else the offset itself."""
    alias = freq.freqstr
    try:
        same = pd.tseries.frequencies.to_offset(alias) == freq
    except ValueError:
        same = False
    return encoder.encode(alias if same else freq)


def decode_freq(node: Node, decoder: Decoder) -> Any:
    """Decode the offset that :func:`encode_freq` encoded."""
    freq = decoder.decode(node)
    with translate_decode_errors(node):
        return pd.tseries.frequencies.to_offset(freq)


def encode_attributes(value: Any, encoder: Encoder) -> Node:
    """``attrs`` and flags of a Series or DataFrame."""
    return encoder.encode([value.attrs, value.flags.allows_duplicate_labels])


def restore_attributes(value: Any, node: Node, decoder: Decoder) -> None:
    """Restore what :func:`encode_attributes` encoded."""
    described = decoder.decode(node)
    with translate_decode_errors(node):
        attrs, allows_duplicates = described
        if not isinstance(attrs, dict) or not isinstance(allows_duplicates, bool):
            raise TypeError("expected attrs and flags")
        if attrs:
            value.attrs = attrs
        if not allows_duplicates:
            value.flags.allows_duplicate_labels = False


def pyarrow_installed() -> bool:
    """Whether Arrow can be used for text; pandas works without it."""
    if "pyarrow" in sys.modules:
        return True
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return False
    return True
