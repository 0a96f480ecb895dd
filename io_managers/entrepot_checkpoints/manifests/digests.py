"""Collision-resistant digests that name chunks.

BLAKE3 where its package is installed, as it is with ``entrepot[checkpoints]``: it takes a fifth of the time of SHA-256,
which is slower than fast disks. SHA-256 otherwise. A digest states which of the two it is.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from entrepot.errors import UnsupportedType

BLAKE3_PREFIX = "b3-"  # of a BLAKE3 digest; without it: SHA-256
DIGEST_PATTERN = re.compile(rf"({BLAKE3_PREFIX})?[0-9a-f]{{64}}")

_hasher: Any = None  # blake3.blake3, or False if not installed; set at the first use


def _blake3() -> Any:
    global _hasher
    if _hasher is None:
        try:
            from blake3 import blake3
        except ImportError:
            _hasher = False
        else:
            _hasher = blake3
    return _hasher


def digest_of(data: bytes | memoryview) -> str:
    """The digest of these bytes."""
    hasher = _blake3()
    return f"{BLAKE3_PREFIX}{hasher(data).hexdigest()}" if hasher else hashlib.sha256(data).hexdigest()


def can_check(digest: str) -> bool:
    """Whether :func:`matches` can check this digest."""
    return not digest.startswith(BLAKE3_PREFIX) or bool(_blake3())


def matches(data: bytes | memoryview, digest: str) -> bool:
    """Whether these bytes have that digest.

    Raises:
        UnsupportedType: it is a BLAKE3 digest, and the package is not installed.
    """
    if not digest.startswith(BLAKE3_PREFIX):
        return hashlib.sha256(data).hexdigest() == digest
    hasher = _blake3()
    if not hasher:
        raise UnsupportedType(
            "this checkpoint's chunks are named by BLAKE3 digests, but the package blake3 is not installed: "
            "pip install 'entrepot[checkpoints]'"
        )
    return bool(hasher(data).hexdigest() == digest.removeprefix(BLAKE3_PREFIX))


def folder_of(digest: str) -> str:
    """The first two digits: the subdirectory over which chunks are spread."""
    return digest.removeprefix(BLAKE3_PREFIX)[:2]
