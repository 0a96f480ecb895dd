"""Values of other versions of packages: what is read all the same, and what errors say.

The versions themselves meet in ``tests/environments``; here is what one environment can show.
"""

from __future__ import annotations

import pathlib
import sys
import zoneinfo
from datetime import datetime
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from entrepot._codecs.builtin import PickleCodec
from entrepot.codec import Decoder, Node, default_registry, unpack_tree
from entrepot.errors import CorruptData, UnsupportedType, VersionMismatch
from entrepot_io.codecs import arrow_schema, pandas_arrays
from entrepot_io.codecs.arrow_versions import unknown_extension, unreadable_schema

NODE = Node("arrow.schema", 1)
# What Python 3.13 pickles for a path, without the frame around it.
PATH_OF_313 = b"\x80\x05\x8c\x0epathlib._local\x94\x8c\tPosixPath\x94\x93\x94\x8c\x02/x\x94\x85\x94R\x94."


def unpickle(stream: bytes, permits: Any = True) -> Any:
    """Read a pickle as another process wrote it."""
    decoder = Decoder(default_registry(), lambda index: b"", 0, allow_pickle=permits)
    return PickleCodec().decode(Node("python.pickle", 1, stream), decoder)


def stream_for(module: str, name: str, argument: str = "") -> bytes:
    """A pickle that calls a function by name."""
    arguments = f"(V{argument}\nt" if argument else ")"
    return f"c{module}\n{name}\n{arguments}R.".encode()


# Pickles


def test_a_path_of_python_313_is_read_by_every_python() -> None:
    assert unpickle(PATH_OF_313) == pathlib.Path("/x")
    assert unpickle(PATH_OF_313, lambda name: False) == pathlib.Path("/x")  # as other paths, it is always permitted


@pytest.mark.parametrize("name", ["_nat_unpickle", "__nat_unpickle"])
def test_nat_of_either_pandas_is_read(name: str) -> None:
    stream = f"cpandas._libs.tslibs.nattype\n{name}\n(NtR.".encode()
    assert unpickle(stream) is pd.NaT
    assert unpickle(stream, lambda asked: asked == f"pandas._libs.tslibs.nattype.{name}") is pd.NaT
    with pytest.raises(UnsupportedType, match="does not allow"):
        unpickle(stream, lambda asked: False)


def test_a_name_that_the_installed_version_lacks() -> None:
    for module in ("numpy", "numpy.of_the_future"):
        with pytest.raises(VersionMismatch, match=rf"pickled with {module}\.later, which numpy {np.__version__}, "):
            unpickle(stream_for(module, "later"))
    with pytest.raises(VersionMismatch, match=rf"collections\.later, which Python {sys.version_info.major}\."):
        unpickle(stream_for("collections", "later"))


def test_a_package_that_is_not_installed() -> None:
    with pytest.raises(UnsupportedType, match="cannot be imported here: No module named 'not_installed'"):
        unpickle(stream_for("not_installed.part", "name"))


def test_a_package_that_does_not_accept_what_was_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_for("numpy", "dtype", "of the future")
    with pytest.raises(VersionMismatch, match=rf"numpy {np.__version__}, installed here, does not accept"):
        unpickle(stream)
    with pytest.raises(CorruptData, match="cannot be read"):  # not a complete pickle: it is the data
        unpickle(stream[:-1])
    own = ModuleType("module_of_a_user")
    monkeypatch.setitem(sys.modules, own.__name__, own)
    exec("def build(text):\n    raise ValueError('not with ' + text)", own.__dict__)
    with pytest.raises(CorruptData, match="not with this"):  # it has no version that could be wrong
        unpickle(stream_for(own.__name__, "build", "this"))
    monkeypatch.setattr(own, "__version__", "1.5", raising=False)
    with pytest.raises(VersionMismatch, match=r"module_of_a_user 1\.5, installed here"):
        unpickle(stream_for(own.__name__, "build", "this"))


# Arrow


def _schema(*types: pa.DataType) -> bytes:
    fields = [pa.field(f"f{number}", type_) for number, type_ in enumerate(types)]
    return bytes(pa.schema(fields).serialize().to_pybytes())


@pytest.mark.parametrize(
    ("attribute", "needed", "type_"),
    [
        ("decimal32", "19", pa.list_(pa.struct([("d", pa.decimal32(5, 2))]))),
        ("decimal64", "19", pa.dictionary(pa.int8(), pa.decimal64(12, 2))),
        ("string_view", "16", pa.map_(pa.string(), pa.string_view())),
        ("binary_view", "16", pa.binary_view()),
        ("list_view", "16", pa.list_view(pa.int8())),
        ("large_list_view", "16", pa.large_list_view(pa.int8())),
        ("run_end_encoded", "12", pa.run_end_encoded(pa.int32(), pa.int8())),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_type_that_a_schema_names_is_found(
    monkeypatch: pytest.MonkeyPatch, attribute: str, needed: str, type_: pa.DataType
) -> None:
    message = _schema(pa.int64(), type_, pa.decimal128(9), pa.timestamp("ns", "UTC"))
    assert unreadable_schema(NODE, message) is None
    monkeypatch.delattr(pa, attribute)
    error = unreadable_schema(NODE, message)
    assert isinstance(error, VersionMismatch)
    expected = f"Arrow type {attribute}, which pyarrow {pa.__version__}, installed here, does not support"
    assert expected in str(error)
    assert f"install pyarrow {needed} or newer" in str(error)
    assert unreadable_schema(NODE, _schema(pa.int64(), pa.decimal128(9))) is None


def test_a_type_of_a_later_arrow_format(put: Any) -> None:
    stored = put(pa.schema([("f", pa.int64())]))
    message: bytes = unpack_tree(stored.tree).params[0]
    position = _place_of_type(message)
    assert message[position] == 2  # Int
    later = message[:position] + bytes([200]) + message[position + 1 :]
    stored.tree = stored.tree.replace(message, later)
    with pytest.raises(VersionMismatch, match=rf"number 200, which pyarrow {pa.__version__}"):
        stored.get()


def _place_of_type(message: bytes) -> int:
    """Where a schema of one field of integers names its type: the byte that makes it another type."""
    for position, byte in enumerate(message):
        changed = message[:position] + bytes([200]) + message[position + 1 :]
        error = unreadable_schema(NODE, changed) if byte == 2 else None
        if error is not None and "number 200" in str(error):
            return position
    raise AssertionError("no byte of the schema is its type")


def test_damaged_schemas_are_not_taken_for_later_ones() -> None:
    message = _schema(pa.int64(), pa.list_(pa.decimal64(12, 2)), pa.string_view())
    outcomes = set()
    for position in range(len(message)):
        for byte in (0, 1, 0x7F, 0xFF):
            error = unreadable_schema(NODE, message[:position] + bytes([byte]) + message[position + 1 :])
            outcomes.add(type(error))
        unreadable_schema(NODE, message[:position])
    assert outcomes <= {type(None), VersionMismatch}
    for text in (b"", b"\xff" * 8, b"\x00" * 64):
        assert unreadable_schema(NODE, text) is None
        with pytest.raises(CorruptData, match="schema"):
            arrow_schema.restore_schema(NODE, [text, []])


def test_extension_types_of_a_later_arrow_and_of_others(put: Any) -> None:
    assert "install pyarrow 19 or newer" in str(unknown_extension(NODE, "arrow.json"))
    assert f"pyarrow {pa.__version__}" in str(unknown_extension(NODE, "arrow.of_the_future"))
    assert unknown_extension(NODE, "someone.elses") is None
    stored = put(pa.schema([("u", pa.uuid())]))
    stored.tree = stored.tree.replace(b"arrow.uuid", b"arrow.next")  # in the schema and beside it
    with pytest.raises(VersionMismatch, match=r"arrow\.next, which pyarrow"):
        stored.get()


# pandas


def _str_dtype() -> Any:
    return pandas_arrays._text_dtype("pyarrow", True)


def test_short_text_over_arrow_needs_no_arrow_to_be_read(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    values = pd.Series(["a", None, "ä"], dtype=_str_dtype(), index=pd.Index(["x", "y", "z"], dtype=_str_dtype()))
    stored = put(values)
    assert b"arrow." not in stored.tree
    pd.testing.assert_series_equal(stored.get(), values)
    nullable = pd.Series(["a", None], dtype="string[pyarrow]")
    pd.testing.assert_series_equal(put(nullable).get(), nullable)


def test_short_text_that_earlier_versions_stored_is_still_read(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [pd.Series(["a", None], dtype=_str_dtype()), pd.Series(["a", None], dtype="string[pyarrow]")]
    with monkeypatch.context() as earlier:
        earlier.setattr(pandas_arrays, "_ARROW_TEXT_LENGTH", 0)
        stored = put(values)
    assert b"arrow.chunked_array" in stored.tree
    for back, value in zip(stored.get(), values, strict=True):
        pd.testing.assert_series_equal(back, value)


def test_a_zone_of_pytz_without_pytz(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytz = pytest.importorskip("pytz")
    values = pd.Series([datetime(2024, 7, 1)]).dt.tz_localize(pytz.timezone("Europe/Berlin"))
    stored = put(values)
    assert str(stored.get().dt.tz) == "Europe/Berlin"
    monkeypatch.setitem(sys.modules, "pytz", None)
    back = stored.get()
    assert type(back.dt.tz) is zoneinfo.ZoneInfo
    assert back.dt.tz.key == "Europe/Berlin"
    assert (back == values).all()
