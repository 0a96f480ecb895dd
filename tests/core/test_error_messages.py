"""Error messages name the wrong value and a remedy; one entry per kind of bad input."""

from __future__ import annotations

import re
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import errors

MIB = 1 << 20
UNKNOWN = "ab" * 20
TAKEN = "cd" * 20


def unsealed(store: entrepot.Store) -> Any:
    with store.create(10, id=UNKNOWN):
        return store.get(UNKNOWN)


def full(store: entrepot.Store) -> None:
    pinned_values: list[Any] = []
    while len(pinned_values) < 40:
        pinned_values.append(store.get(store.put(np.ones(16 * MIB, dtype=np.uint8), name=f"kept {len(pinned_values)}")))


# call, error, pattern of the value in the message, pattern of the advice
CASES: dict[str, tuple[Callable[[entrepot.Store], Any], type[Exception], str, str]] = {
    "unknown ID": (lambda s: s.get(UNKNOWN), errors.ObjectNotFound, UNKNOWN, "timeout"),
    "unknown ID of many": (lambda s: s.get_many([UNKNOWN]), errors.ObjectNotFound, UNKNOWN, "timeout"),
    "digits too few": (lambda s: s.get("00ff"), errors.InvalidArgument, "'00ff' has 4", "40 hexadecimal digits"),
    "no digits": (lambda s: s.get("g" * 40), errors.InvalidArgument, "g" * 40, "hexadecimal digits"),
    "bytes too few": (lambda s: s.get(b"x" * 19), errors.InvalidArgument, "19", "20 bytes"),
    "no ID at all": (lambda s: s.get(7), errors.InvalidArgument, "int", "40 hexadecimal digits or 20 bytes"),  # type: ignore[arg-type]  # the error is the test
    "sealed twice": (lambda s: s.put(b"other", id=TAKEN), errors.ObjectExists, TAKEN, "replace=True"),
    "get before seal": (unsealed, errors.ObjectNotFound, UNKNOWN, "timeout"),
    "seal not in time": (lambda s: s.get(UNKNOWN, timeout=0.05), errors.Timeout, f"{UNKNOWN}.* 50 ms", "not sealed"),
    "larger than the store": (
        lambda s: s.put(np.zeros(300 * MIB, dtype=np.uint8)),
        errors.StoreFull,
        "300 MiB.*256 MiB",
        "larger --size, or put it in parts",
    ),
    "full": (full, errors.StoreFull, "room for 16 MiB.*capacity 256 MiB.*pins .* objects", "Delete objects .*--size"),
    "name taken": (lambda s: s.put(2, name="orders"), errors.ObjectExists, "'orders'", "replace=True"),
    "unknown name": (
        lambda s: s.resolve("none"),
        errors.ObjectNotFound,
        "'none'",
        "in the scope's own session of 'tests'",
    ),
    "no codec": (
        lambda s: s.put(threading.Lock()),
        errors.UnsupportedType,
        "_thread.lock",
        "Return data instead .*register a codec",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_message_names_the_value_and_what_to_do(
    store: entrepot.Store, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 2.0)
    call, error, value, advice = CASES[case]
    store.put(b"sealed", id=TAKEN, name="orders")
    with pytest.raises(error) as caught:
        call(store)
    assert type(caught.value) is error
    assert re.search(value, str(caught.value), re.DOTALL), caught.value
    assert re.search(advice, str(caught.value), re.DOTALL), caught.value


def test_no_memory_for_segments_is_told_and_passes(store: entrepot.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Independent of the machine: the daemon may map no more memory than it has now.
    store.wait_provisioned()
    pid = store.status()["pid"]
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mapped = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize:"))
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    value = np.full(250 * MIB, 7, dtype=np.uint8)  # of 256 MiB, so that the memory already mapped is not enough
    resource.prlimit(pid, resource.RLIMIT_AS, (mapped + MIB, before[1]))
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 2.0)
    with pytest.raises(errors.StoreFull) as caught:
        store.put(value)
    monkeypatch.undo()
    # The daemon tries again every second; the message says so where that is just under way.
    reason = r"(currently limited to .* for lack of memory|for lack of memory, refused a moment ago): .*Cannot allocate"
    assert re.search(reason, str(caught.value)), caught.value
    assert "--size" in str(caught.value)
    resource.prlimit(pid, resource.RLIMIT_AS, before)
    assert store.get(store.put(value[: 64 * MIB]))[-1] == 7
    assert store.status()["pid"] == pid


def test_connecting_again_finds_the_new_store_while_an_old_one_is_held(daemon: Any, store: entrepot.Store) -> None:
    oid = store.put(np.arange(50_000))
    value = store.get(oid)
    old_instance = store.instance_id
    daemon.stop()
    daemon.start()
    with entrepot.connect(daemon.address, scope="tests") as reconnected:
        assert reconnected.instance_id != old_instance
        with pytest.raises(errors.ObjectLost):
            reconnected.get(oid)
    assert value[-1] == 49_999
