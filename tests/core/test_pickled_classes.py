"""Classes and functions that pickled data may name: ``connect(allow_pickle=, pickled_classes=)``."""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import os
import pathlib
import pickle
import subprocess
import uuid
from collections.abc import Callable
from typing import Any, get_type_hints

import entrepot
import numpy as np
import pytest
from entrepot._codecs.builtin import BytesCodec, PickleCodec
from entrepot._codecs.encoding import codec_registry
from entrepot.codec import PICKLE_CODEC, AllowPickle, Decoder, Encoder, Node, default_registry
from entrepot.errors import InvalidArgument, UnsupportedType

THIS_MODULE = __name__


class Kept:
    """A permitted class that stores its arguments."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept) and self.parts == other.parts

    __hash__ = None  # type: ignore[assignment]


class Reduced:
    """Pickles as the call that it was given."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._reduction = (call, arguments)

    def __reduce__(self) -> Any:
        return self._reduction


def permits(name: str) -> bool:
    return name.startswith(f"{THIS_MODULE}.Kept")


def connect_strictly(address: str, permits: Callable[[str], bool] = permits) -> entrepot.Store:
    return entrepot.connect(address, allow_pickle=True, pickled_classes=permits)


@pytest.fixture(autouse=True)
def _exceptions_pickle_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's scheduler, which a test before may have imported, has all exceptions pickled by functions of tblib."""
    by_tblib = [
        kind
        for kind, reducer in copyreg.dispatch_table.items()
        if getattr(getattr(reducer, "func", reducer), "__module__", "").startswith("tblib")
    ]
    for kind in by_tblib:
        monkeypatch.delitem(copyreg.dispatch_table, kind)


def test_an_argument_switches_pickling_off_and_on(
    daemon: Any, store: entrepot.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    oid = store.put(Kept(1))
    with entrepot.connect(daemon.address, allow_pickle=False) as without_pickling:
        with pytest.raises(UnsupportedType, match="switched off"):
            without_pickling.get(oid)
        with pytest.raises(UnsupportedType):
            without_pickling.put(Kept(2))
    monkeypatch.setenv("ENTREPOT_ALLOW_PICKLE", "0")
    with entrepot.connect(daemon.address, allow_pickle=True) as with_pickling:
        assert with_pickling.get(oid) == Kept(1)


def test_an_argument_of_another_kind_is_refused(daemon: Any) -> None:
    wrong: Any = "no"  # which is truthy
    with pytest.raises(InvalidArgument, match="allow_pickle must be True, False or None, but got 'no'"):
        entrepot.connect(daemon.address, allow_pickle=wrong)


@pytest.mark.parametrize(
    "value",
    [
        Kept(1, "two", [3.0]),
        Kept(uuid.UUID(int=1), pathlib.Path("/x"), {1, 2}, complex(1, 2), range(3), ValueError("x")),
        Kept(collections.OrderedDict(a=1), collections.deque([1])),
        ValueError("of plain Python"),
    ],
    ids=["plain", "several", "collections", "error"],
)
def test_what_is_permitted_and_what_plain_python_consists_of_is_read(
    daemon: Any, store: entrepot.Store, value: Any
) -> None:
    oid = store.put(value)
    with connect_strictly(daemon.address) as strict_store:
        loaded = strict_store.get(oid)
    assert type(loaded) is type(value)
    assert repr(getattr(loaded, "parts", loaded)) == repr(getattr(value, "parts", value))


def test_data_needs_no_permission(daemon: Any, store: entrepot.Store) -> None:
    array = np.arange(5000)
    oids = [store.put(value) for value in (array, {"a": [1, b"x"]}, Kept(array), Kept(np.arange(3), np.float64(1.5)))]
    with connect_strictly(daemon.address) as strict_store:
        assert np.array_equal(strict_store.get(oids[0]), array)
        assert strict_store.get(oids[1]) == {"a": [1, b"x"]}
        assert np.array_equal(strict_store.get(oids[2]).parts[0], array)
        small, number = strict_store.get(oids[3]).parts
        assert small.tolist() == [0, 1, 2]
        assert number == 1.5


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Reduced(os.system, "touch ran"), r"posix\.system"),
        (Reduced(subprocess.check_call, ["touch", "ran"]), r"subprocess\.check_call"),
        (Reduced(eval, "open('ran', 'w')"), r"builtins\.eval"),
        (Reduced(getattr, Kept, "__init__"), r"builtins\.getattr"),
        (Kept(Reduced(exec, "open('ran', 'w')")), r"builtins\.exec"),
        (Reduced(np.fromfile, "ran"), r"numpy\.fromfile"),
    ],
    ids=["system", "subprocess", "eval", "getattr", "nested", "numpy"],
)
def test_anything_else_is_refused_before_it_does_anything(
    daemon: Any, store: entrepot.Store, value: Any, named: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    oid = store.put(value)
    with connect_strictly(daemon.address) as strict_store, pytest.raises(UnsupportedType, match=named):
        strict_store.get(oid)
    assert not list(tmp_path.iterdir())


def stream(module: str, name: str) -> bytes:
    """Pickle that refers to an object by a path of the writer's choice."""
    return b"\x80\x04" + b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name)) + b"\x93."


@pytest.mark.parametrize(
    ("module", "name"), [(THIS_MODULE, "os.system"), (THIS_MODULE, "os"), (THIS_MODULE, "subprocess.Popen")]
)
def test_a_permitted_module_is_no_way_to_others(module: str, name: str) -> None:
    """Names in a pickle may contain dots, so a pattern for a module would cover all that the module has imported."""
    node = Node(PICKLE_CODEC, PickleCodec.version, params=stream(module, name))
    assert pickle.loads(stream(module, "Kept")) is Kept

    def decoded(text: bytes) -> Any:
        allowed = lambda full_name: full_name.startswith(THIS_MODULE)  # noqa: E731
        decoder = Decoder(default_registry(), lambda _: b"", 0, allow_pickle=allowed)
        node.params = text
        return decoder.decode(node)

    assert decoded(stream(module, "Kept")) is Kept
    with pytest.raises(UnsupportedType, match="does not allow in pickled data"):
        decoded(stream(module, name))


# Pickle streams in objects that were put before entrepot's private modules moved: an exception with child 0 as its
# argument, and SessionInfo("a", "b", 1, 0.5, 2, 3, 4, 5, False).
FORMER_CHILD = (
    b"\x80\x05\x95Q\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins\x94\x8c\nValueError\x94\x93\x94"
    b"\x8c\x18entrepot._codecs_builtin\x94\x8c\x0c_child_value\x94\x93\x94K\x00\x85\x94R\x94\x85\x94R\x94."
)
FORMER_SESSION_INFO = (
    b"\x80\x05\x95F\x00\x00\x00\x00\x00\x00\x00\x8c\x0eentrepot._info\x94\x8c\x0bSessionInfo\x94\x93\x94)\x81\x94]\x94"
    b"(\x8c\x01a\x94\x8c\x01b\x94K\x01G?\xe0\x00\x00\x00\x00\x00\x00K\x02K\x03K\x04K\x05\x89eb."
)
SESSION_INFO = entrepot.SessionInfo("a", "b", 1, 0.5, 2, 3, 4, 5, False)
FORMER_GLOBALS = [
    ("entrepot._connect", "connect", entrepot.connect),
    ("entrepot._info", "ObjectInfo", entrepot.ObjectInfo),
    ("entrepot._info", "Receipt", entrepot.PutResult),
    ("entrepot._info", "SessionInfo", entrepot.SessionInfo),
    ("entrepot._locality", "LocalitySet", entrepot.LocalitySet),
]


def decode_pickled(data: bytes, *children: Node, allow_pickle: AllowPickle = True) -> Any:
    node = Node(PICKLE_CODEC, PickleCodec.version, params=data, children=list(children))
    return Decoder(default_registry(), lambda _: b"", 0, allow_pickle=allow_pickle).decode(node)


@pytest.mark.parametrize("allow_pickle", [True, permits], ids=["all", "strict"])
def test_a_value_within_one_that_was_put_before_the_modules_moved_is_read(allow_pickle: AllowPickle) -> None:
    child = Node("python.bytes", BytesCodec.version, params=b"the child")
    assert repr(decode_pickled(FORMER_CHILD, child, allow_pickle=allow_pickle)) == "ValueError(b'the child')"


def test_earlier_versions_can_read_a_value_within_another() -> None:
    node = PickleCodec().encode(Kept(np.zeros(1), entrepot.Blob(memoryview(b"x"), b"")), Encoder(codec_registry()))
    assert [child.codec for child in node.children] == ["entrepot.blob"]
    assert b"\x8c\x18entrepot._codecs_builtin\x94\x8c\x0c_child_value\x94\x93" in node.params


def test_classes_that_were_pickled_before_the_modules_moved_are_read() -> None:
    assert decode_pickled(FORMER_SESSION_INFO) == SESSION_INFO
    assert pickle.loads(FORMER_SESSION_INFO) == SESSION_INFO
    with pytest.raises(UnsupportedType, match=r"entrepot\._info\.SessionInfo"):
        decode_pickled(FORMER_SESSION_INFO, allow_pickle=lambda name: name == "entrepot.SessionInfo")


@pytest.mark.parametrize(("module", "name", "current"), FORMER_GLOBALS)
@pytest.mark.filterwarnings("error")
def test_permission_for_a_former_name_suffices(module: str, name: str, current: Any) -> None:
    only = lambda full_name: full_name == f"{module}.{name}"  # noqa: E731
    assert decode_pickled(stream(module, name), allow_pickle=only) is current
    assert pickle.loads(stream(module, name)) is current


@pytest.mark.parametrize("current", [current for _, _, current in FORMER_GLOBALS])
def test_pickles_name_public_paths(current: Any) -> None:
    data = pickle.dumps(current)
    assert b"\x8c\x08entrepot\x94\x8c" in data
    assert pickle.loads(data) is current
    only = lambda full_name: full_name == f"entrepot.{current.__name__}"  # noqa: E731
    assert decode_pickled(data, allow_pickle=only) is current


def test_a_pickled_collection_names_a_path_of_earlier_versions(store: entrepot.Store) -> None:
    builder = store.collection("numbers")
    builder.extend([1, 2, 3])
    data = pickle.dumps(builder.seal()[1:])
    assert b"\x8c\x14entrepot._collection\x94\x8c\n_unpickled\x94\x93" in data
    assert list(pickle.loads(data)) == [2, 3]


@pytest.mark.parametrize("kind", [entrepot.LocalitySet, entrepot.ObjectInfo, entrepot.PutResult, entrepot.SessionInfo])
def test_annotations_of_public_classes_can_be_evaluated(kind: type) -> None:
    assert set(get_type_hints(kind)) == {field.name for field in dataclasses.fields(kind)}


def test_sessions_and_copies_of_the_store_are_as_strict(daemon: Any, store: entrepot.Store) -> None:
    oid = store.put(Reduced(int, "7"))
    other = store.put(Reduced(os.getpid))
    with connect_strictly(daemon.address) as strict_store:
        unpickled = pickle.loads(pickle.dumps(strict_store))
        for copy in (strict_store, strict_store.session("within"), unpickled):
            assert copy.get(oid) == 7
            with pytest.raises(UnsupportedType, match="getpid"):
                copy.get(other)
        unpickled.close()
    with entrepot.connect(daemon.address, allow_pickle=False) as without_pickling:
        unpickled = pickle.loads(pickle.dumps(without_pickling))
        with pytest.raises(UnsupportedType):
            unpickled.get(oid)
        unpickled.close()


def test_a_copy_of_a_durable_store_is_as_strict(daemon: Any, store: entrepot.Store, tmp_path: Any) -> None:
    oid = store.put(Reduced(os.getpid))
    with entrepot.connect(
        daemon.address, session="kept", durable=f"file://{tmp_path}", allow_pickle=True, pickled_classes=permits
    ) as durable:
        unpickled = pickle.loads(pickle.dumps(durable))
        assert unpickled.durable == durable.durable
        with pytest.raises(UnsupportedType, match="getpid"):
            unpickled.get(oid)
        unpickled.close()
