"""Codecs of the user's own: ``entrepot_io.register`` and ``@entrepot.codec``."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import entrepot
import entrepot_io
import numpy as np
import pytest
from entrepot.codec import Codec, Decoder, Encoder, Node, default_registry, encode_value, pack_tree, unpack_tree
from entrepot.errors import (
    CodecFailed,
    CorruptData,
    EntrepotError,
    InvalidArgument,
    ObjectNotFound,
    UnsupportedType,
    VersionMismatch,
)


@dataclass
class Points:
    """A type of the user's own."""

    xy: Any
    unit: str = "m"


class Closer(Points):
    """A subclass, which has no codec."""


@dataclass
class Other:
    """Another type."""

    value: Any = None


def encode(points: Points) -> Any:
    return {"xy": points.xy, "unit": points.unit}


def decode(content: Any) -> Points:
    return Points(content["xy"], content["unit"])


def fail(_: Any) -> Any:
    raise KeyError("speed")


@pytest.fixture(autouse=True)
def _no_codec_outlives_its_test() -> Iterator[None]:
    registry = default_registry()
    own = registry._own
    yield
    registry._own, registry._by_type = own, {}


@pytest.fixture(scope="module")
def store(module_daemon: Any) -> Iterator[entrepot.Store]:
    with entrepot.connect(module_daemon.address, scope="own", allow_pickle=False) as connected:
        yield connected


def get_tree(root: Node, allow_pickle: bool = False) -> Any:
    decoder = Decoder(default_registry(), lambda index: b"", 0, allow_pickle=allow_pickle)
    return decoder.decode(unpack_tree(pack_tree(root)))


def test_functions(store: entrepot.Store) -> None:
    entrepot_io.register(Points, encode, decode, name="geo.Points")
    value = Points(np.arange(100_000.0), "km")
    oid = store.put(value)
    assert store.info(oid).type == "geo.Points"
    back = store.get(oid)
    assert type(back) is Points
    assert (back.unit, back.xy.tolist()) == ("km", value.xy.tolist())
    other = store.get(oid)
    assert not back.xy.flags.writeable
    assert np.shares_memory(back.xy, other.xy), "both are views of the stored bytes"
    assert store.get(oid, copy="always").xy.flags.writeable
    nested = store.get(store.put({"a": [value, 1]}))
    assert type(nested["a"][0]) is Points


def test_the_decorator(store: entrepot.Store) -> None:
    @entrepot.codec(Points, version=2)
    class PointsCodec:
        older = {1: lambda content: Points(content, "m")}  # noqa: RUF012 - as a user writes it

        def encode(self, value: Points) -> Any:
            return encode(value)

        def decode(self, content: Any) -> Points:
            return decode(content)

    assert isinstance(PointsCodec, type)
    assert store.get(store.put(Points(np.arange(3), "km"))).unit == "km"
    name = f"{__name__}.Points"
    stored = encode_value(np.arange(3))[0]
    assert get_tree(Node(name, 1, children=[unpack_tree(stored)])).xy.tolist() == [0, 1, 2]
    with pytest.raises(VersionMismatch, match="upgrade"):
        get_tree(Node(name, 3, children=[unpack_tree(stored)]))


def test_the_decorator_on_a_codec_with_nodes_and_buffers(store: entrepot.Store) -> None:
    @entrepot.codec(Points, name="geo.raw", version=7)
    class RawCodec(Codec):
        def encode(self, value: Any, encoder: Encoder) -> Node:
            return Node(self.name, self.version, value.unit, [encoder.add_buffer(value.xy)])

        def decode(self, node: Node, decoder: Decoder) -> Any:
            return Points(np.frombuffer(decoder.buffer(node.buffers[0])), node.params)

    back = store.get(store.put(Points(np.arange(5000.0), "km")))
    assert (back.unit, back.xy[4999]) == ("km", 4999)


def test_only_the_exact_type(store: entrepot.Store) -> None:
    entrepot_io.register(Points, encode, decode)
    with pytest.raises(UnsupportedType, match=r"test_own_codecs\.Closer"):
        store.put(Closer(1))


def test_values_inside_a_pickled_object(module_daemon: Any) -> None:
    entrepot_io.register(Points, encode, decode, name="geo.Points")
    with entrepot.connect(module_daemon.address, scope="own") as store:
        oid = store.put(Other(Points(np.arange(100_000))))
        back = store.get(oid)
        assert np.shares_memory(back.value.xy, store.get(oid).value.xy)
        entrepot_io.register(Other, fail, fail)
        with pytest.raises(CodecFailed):
            store.put([object, Other()])


def test_an_unknown_codec_says_its_name_and_what_to_do(store: entrepot.Store) -> None:
    entrepot_io.register(Points, encode, decode, name="geo.Points")
    oid = store.put(Points(1))
    default_registry()._own = {}
    with pytest.raises(VersionMismatch, match=r"'geo\.Points'.*install.*entrepot_io\.register.*import the module"):
        store.get(oid)
    assert store.exists(oid)


def test_a_version_without_decoder_says_so() -> None:
    entrepot_io.register(Points, encode, decode, name="geo.Points", version=3, older={2: decode})
    with pytest.raises(VersionMismatch, match=r"version 1 of the codec 'geo\.Points'.*older=\{1: "):
        get_tree(Node("geo.Points", 1, children=[Node("python.data", 1)]))
    with pytest.raises(CorruptData, match="0 children"):
        get_tree(Node("geo.Points", 3))


def test_a_codec_that_raises_on_put_leaves_nothing(store: entrepot.Store) -> None:
    entrepot_io.register(Points, fail, decode, name="geo.Points")
    before = store.status()["objects"]
    for value in (Points(1), {"a": [np.arange(100_000), Points(1)]}):
        with pytest.raises(CodecFailed, match=r"'geo\.Points'.*test_own_codecs\.Points: KeyError: 'speed'") as caught:
            store.put(value, name="points")
        assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(CodecFailed):
        store.put_many([np.arange(100_000), Points(1)])
    assert store.status()["objects"] == before
    with pytest.raises(ObjectNotFound):
        store.get_by_name("points")
    assert store.get(store.put(1)) == 1


def test_a_codec_that_raises_on_get(store: entrepot.Store) -> None:
    entrepot_io.register(Points, encode, fail, name="geo.Points")
    oid = store.put(Points(1))
    with pytest.raises(CodecFailed, match=r"'geo\.Points' failed to decode.*KeyError: 'speed'") as caught:
        store.get(oid)
    assert isinstance(caught.value.__cause__, KeyError)
    assert isinstance(caught.value, EntrepotError)
    assert not isinstance(caught.value, CorruptData), "the data may be sound"
    assert store.exists(oid)


@pytest.mark.parametrize("result", [None, "text", Node("geo.Points", 1, {1, 2}), Node("geo.Points", 1, 2**70)])
def test_a_codec_that_returns_no_tree(store: entrepot.Store, result: Any) -> None:
    @entrepot.codec(Points, name="geo.Points")
    class Broken(Codec):
        def encode(self, value: Any, encoder: Encoder) -> Node:
            node: Node = result
            return node

        def decode(self, node: Node, decoder: Decoder) -> Any:
            return None

    for value in (Points(1), [Points(1)]):
        with pytest.raises(CodecFailed, match=r"'geo\.Points'.*nothing was stored"):
            store.put(value)


def test_a_codec_may_leave_values_to_pickle(module_daemon: Any) -> None:
    def refuse(value: Any) -> Any:
        raise UnsupportedType(f"{value} is not supported")

    entrepot_io.register(Points, refuse, decode, name="geo.Points")
    with entrepot.connect(module_daemon.address, scope="own") as store:
        assert store.info(store.put(Points(1))).type == "python.pickle"
        assert store.get(store.put(Points(1))) == Points(1)


def test_a_codec_that_returns_the_value_itself(store: entrepot.Store) -> None:
    entrepot_io.register(Points, lambda value: value, decode, name="geo.Points")
    with pytest.raises((UnsupportedType, CodecFailed), match=r"contains itself|geo\.Points"):
        store.put(Points(1))


@pytest.mark.parametrize("name", ["numpy.ndarray", "pandas.DataFrame", "python.data", "python.new", "entrepot.again"])
def test_names_of_built_in_codecs_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}'.* is taken"):
        entrepot_io.register(Points, encode, decode, name=name)
    with pytest.raises(InvalidArgument, match=f"{name}'.* is taken"):
        entrepot.codec(Points, name=name)(type("C", (), {"encode": encode, "decode": decode}))


def test_types_and_names_that_are_taken() -> None:
    with pytest.raises(InvalidArgument, match=r"numpy\.ndarray already has the codec 'numpy\.ndarray'"):
        entrepot_io.register(np.ndarray, encode, decode, name="mine")
    with pytest.raises(InvalidArgument, match=r"numpy\.float64 already has the codec 'numpy\.generic'"):
        entrepot_io.register(np.float64, encode, decode, name="mine")
    entrepot_io.register(Points, encode, decode, name="geo.Points")
    with pytest.raises(InvalidArgument, match="taken for the type"):
        entrepot_io.register(Other, encode, decode, name="geo.Points")
    with pytest.raises(InvalidArgument, match="already has the codec"):
        entrepot_io.register(Points, encode, decode, name="geo.points2")


def test_a_cell_of_a_notebook_may_run_again(store: entrepot.Store) -> None:
    def cell() -> type:
        @dataclass
        class Cell:
            number: int

        entrepot_io.register(Cell, lambda value: value.number, Cell, name="cell")
        return Cell

    first, second = cell(), cell()
    assert type(store.get(store.put(second(5)))) is second
    with pytest.raises(UnsupportedType):
        store.put(first(5))


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": ""},
        {"name": 5},
        {"name": "x" * 201},
        {"name": "a\nb"},
        {"version": 0},
        {"version": True},
        {"version": "1"},
        {"version": 2**31},
        {"version": 2, "older": {2: decode}},
        {"version": 2, "older": {"1": decode}},
        {"version": 2, "older": {1: "decode"}},
        {"encode": 5},
        {"decode": None},
        {"kind": "Points"},
    ],
    ids=" ".join,
)
def test_arguments_are_checked(arguments: dict[str, Any]) -> None:
    called = {"kind": Points, "encode": encode, "decode": decode, **arguments}
    with pytest.raises(InvalidArgument):
        entrepot_io.register(called.pop("kind"), called.pop("encode"), called.pop("decode"), **called)
    assert not default_registry()._own


def test_what_the_decorator_needs() -> None:
    with pytest.raises(InvalidArgument, match="needs methods"):
        entrepot.codec(Points)(type("C", (), {"encode": encode}))
    with pytest.raises(InvalidArgument, match="older"):
        entrepot.codec(Points)(type("C", (), {"encode": encode, "decode": decode, "older": {1: decode}}))
    with pytest.raises(InvalidArgument, match="for a type"):
        entrepot.codec(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_package_registers_its_codec_by_entry_point(tmp_path: Path) -> None:
    (tmp_path / "geo_for_test.py").write_text(
        textwrap.dedent("""
        import entrepot
        from entrepot.codec import CodecSpec

        class Points:
            def __init__(self, xy): self.xy = xy

        @entrepot.codec(Points, name="geo.Points")
        class PointsCodec:
            def encode(self, points): return points.xy
            def decode(self, content): return Points(content)
        """)
    )
    (tmp_path / "geo_specs.py").write_text(
        textwrap.dedent("""
        from entrepot.codec import CodecSpec
        def codec_specs():
            return [CodecSpec("geo.Points", "geo_for_test:PointsCodec", types=("geo_for_test:Points",))]
        """)
    )
    info = tmp_path / "geo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: geo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[entrepot.codecs]\ngeo = geo_specs:codec_specs\n")
    program = textwrap.dedent("""
        import sys
        from entrepot.codec import Decoder, default_registry, encode_value, unpack_tree, Node
        registry = default_registry()
        decoder = Decoder(registry, None, 0)
        back = decoder.decode(Node("geo.Points", 1, children=[Node("python.data", 1)])) if "read" in sys.argv else None
        import geo_for_test
        tree, _, codec = encode_value(geo_for_test.Points([1, 2]), allow_pickle=False)
        assert codec == "geo.Points"
        assert decoder.decode(unpack_tree(tree)).xy == [1, 2]
        """)
    for arguments in ([], ["read"]):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                program.replace('Node("python.data", 1)', "unpack_tree(encode_value([3])[0])"),
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr


def test_an_entry_point_that_fails_names_its_package(tmp_path: Path) -> None:
    info = tmp_path / "geo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: geo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[entrepot.codecs]\nbroken = geo_that_is_missing:codec_specs\n")
    program = "from entrepot.codec import encode_value\nencode_value(1, allow_pickle=False)\nencode_value(object())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert "CodecFailed: the entry point 'broken' of geo (entrepot.codecs = geo_that_is_missing:" in done.stderr
