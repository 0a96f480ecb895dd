"""Classes and functions that pickled data may name: ``connect(allow_pickle=, pickled_classes=)``."""

from __future__ import annotations

import collections
import os
import pathlib
import pickle
import subprocess
import uuid
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.errors import InvalidArgument, UnsupportedType

HERE = __name__


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
        self._what = (call, arguments)

    def __reduce__(self) -> Any:
        return self._what


def permits(name: str) -> bool:
    return name.startswith(f"{HERE}.Kept")


def strict(address: str, permits: Callable[[str], bool] = permits) -> entrepot.Store:
    return entrepot.connect(address, allow_pickle=True, pickled_classes=permits)


def test_an_argument_switches_pickling_off_and_on(
    daemon: Any, store: entrepot.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    oid = store.put(Kept(1))
    with entrepot.connect(daemon.address, allow_pickle=False) as without:
        with pytest.raises(UnsupportedType, match="switched off"):
            without.get(oid)
        with pytest.raises(UnsupportedType):
            without.put(Kept(2))
    monkeypatch.setenv("ENTREPOT_ALLOW_PICKLE", "0")
    with entrepot.connect(daemon.address, allow_pickle=True) as with_it:
        assert with_it.get(oid) == Kept(1)


def test_an_argument_of_another_kind_is_refused(daemon: Any) -> None:
    wrong: Any = "no"  # which is truthy
    with pytest.raises(InvalidArgument, match="allow_pickle is True, False or None, but got 'no'"):
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
    with strict(daemon.address) as reading:
        back = reading.get(oid)
    assert type(back) is type(value)
    assert repr(getattr(back, "parts", back)) == repr(getattr(value, "parts", value))


def test_data_needs_no_permission(daemon: Any, store: entrepot.Store) -> None:
    array = np.arange(5000)
    oids = [store.put(one) for one in (array, {"a": [1, b"x"]}, Kept(array), Kept(np.arange(3), np.float64(1.5)))]
    with strict(daemon.address) as reading:
        assert np.array_equal(reading.get(oids[0]), array)
        assert reading.get(oids[1]) == {"a": [1, b"x"]}
        assert np.array_equal(reading.get(oids[2]).parts[0], array)
        small, number = reading.get(oids[3]).parts
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
    with strict(daemon.address) as reading, pytest.raises(UnsupportedType, match=named):
        reading.get(oid)
    assert not list(tmp_path.iterdir())


def stream(module: str, name: str) -> bytes:
    """Pickle that refers to an object by a path of the writer's choice."""
    return b"\x80\x04" + b"".join(b"\x8c" + bytes([len(one)]) + one.encode() for one in (module, name)) + b"\x93."


@pytest.mark.parametrize(("module", "name"), [(HERE, "os.system"), (HERE, "os"), (HERE, "subprocess.Popen")])
def test_a_permitted_module_is_no_way_to_others(module: str, name: str) -> None:
    """Names in a pickle may contain dots, so a pattern for a module would cover all that the module has imported."""
    from entrepot._codecs_builtin import PickleCodec
    from entrepot.codec import PICKLE_CODEC, Decoder, Node, default_registry

    node = Node(PICKLE_CODEC, PickleCodec.version, params=stream(module, name))
    assert pickle.loads(stream(module, "Kept")) is Kept

    def decoded(text: bytes) -> Any:
        allowed = lambda asked: asked.startswith(HERE)  # noqa: E731
        found = Decoder(default_registry(), lambda _: b"", 0, allow_pickle=allowed)
        node.params = text
        return found.decode(node)

    assert decoded(stream(module, "Kept")) is Kept
    with pytest.raises(UnsupportedType, match="not among what may be loaded"):
        decoded(stream(module, name))


def test_sessions_and_copies_of_the_store_are_as_strict(daemon: Any, store: entrepot.Store) -> None:
    oid = store.put(Reduced(int, "7"))
    other = store.put(Reduced(os.getpid))
    with strict(daemon.address) as reading:
        again = pickle.loads(pickle.dumps(reading))
        for one in (reading, reading.session("within"), again):
            assert one.get(oid) == 7
            with pytest.raises(UnsupportedType, match="getpid"):
                one.get(other)
        again.close()
    with entrepot.connect(daemon.address, allow_pickle=False) as without:
        again = pickle.loads(pickle.dumps(without))
        with pytest.raises(UnsupportedType):
            again.get(oid)
        again.close()


def test_a_copy_of_a_durable_store_is_as_strict(daemon: Any, store: entrepot.Store, tmp_path: Any) -> None:
    oid = store.put(Reduced(os.getpid))
    with entrepot.connect(
        daemon.address, session="kept", durable=f"file://{tmp_path}", allow_pickle=True, pickled_classes=permits
    ) as durable:
        again = pickle.loads(pickle.dumps(durable))
        assert again.durable == durable.durable
        with pytest.raises(UnsupportedType, match="getpid"):
            again.get(oid)
        again.close()
