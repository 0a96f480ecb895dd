"""What calls to other stores leave behind: no error, whose traceback would keep the callers' variables alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from entrepot.errors import EntrepotError
from entrepot_io.reference import Reference
from entrepot_io.values import get_value, put_value

pytestmark = pytest.mark.timeout(180)

CALLS: dict[str, Callable[[Any, Any, Reference], object]] = {
    "get": lambda store, oid, _: store.get(oid, timeout=0.05),
    "get_many": lambda store, oid, _: store.get_many([oid], timeout=0.05),
    "pin": lambda store, oid, _: store.pin([oid], timeout=0.05),
    "resolve": lambda store, *_: store.resolve("nothing"),
    "resolve, waiting": lambda store, *_: store.resolve("nothing", timeout=0.05),
    "get_by_name": lambda store, *_: store.get_by_name("nothing", timeout=0.05),
    "publish": lambda store, oid, _: store.publish(oid),
    "locate": lambda store, oid, _: store.locate(oid),
    "migrate": lambda store, oid, _: store.migrate(oid, "nowhere"),
    "prefetch": lambda store, oid, _: store.prefetch(oid),
    "get_value": lambda store, _, reference: get_value(reference, address=store.address),
}


class Variable:
    """Something that a caller has."""


def _is_kept(call: Callable[[], object]) -> bool:
    """Whether a variable of the caller is alive after a call that may have failed, without a search for cycles."""
    references: list[weakref.ref[Variable]] = []

    def caller() -> None:
        variable = Variable()
        references.append(weakref.ref(variable))
        with suppress(EntrepotError):
            call()
        assert variable is not None

    gc.collect()
    gc.disable()
    try:
        caller()
        return references[0]() is not None
    finally:
        gc.enable()


def test_no_call_keeps_its_callers_variables(two_hosts: Any) -> None:
    a, b = two_hosts
    reference = put_value(a.store, "lost", "value")
    a.store.delete(reference.id)
    present = b.store.put("present")
    missing = b.store.derive("missing")
    for name, call in CALLS.items():
        assert not _is_kept(partial(call, b.store, missing, reference)), name
        assert not _is_kept(partial(call, b.store, present, reference)), name


def test_no_call_without_a_gateway_keeps_its_callers_variables(cluster: Any) -> None:
    host = cluster.host("a", gateway=False)
    reference = put_value(host.store, "lost", "value")
    host.store.delete(reference.id)
    for name, call in CALLS.items():
        assert not _is_kept(partial(call, host.store, host.store.derive("missing"), reference)), name
