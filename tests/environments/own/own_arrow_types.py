"""An Arrow extension type that only one environment of the matrix can register."""

from __future__ import annotations

import pyarrow as pa


class _Metres(pa.ExtensionType):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(pa.int64(), "matrix.metres")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> _Metres:
        return cls()


def register() -> pa.DataType:
    """Register the type; return it. To be called once in a process."""
    metres = _Metres()
    pa.register_extension_type(metres)
    return metres
