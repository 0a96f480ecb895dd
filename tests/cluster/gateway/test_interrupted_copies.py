"""A gateway that is killed after a copy was sealed, and before it has recorded of what it is one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import raw_objects
from entrepot.origins import INTENDED, Life, Origin, Role, origin_of, record_of
from entrepot_cluster.directory.opening import open_directory
from entrepot_io.values import get_value, put_value

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

KILLED_BEFORE_RECORDING = """
import os, signal, sys
from entrepot.cli import main
from entrepot_cluster.gateway.object_sink import StoreSink
StoreSink._record = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main(sys.argv[1:]))
"""


def start_doomed_gateway(host: Any) -> None:
    usual = host._command
    host._command = [sys.executable, "-c", KILLED_BEFORE_RECORDING, *usual[3:]]
    host.start_gateway()
    host._command = usual


def reading(host: Any, oid: entrepot.ObjectID) -> threading.Thread:
    """Read an object on a host, which has to fetch it, in a thread."""
    reader = threading.Thread(target=host.store.get, args=(oid,))
    reader.start()
    return reader


def lives_of(cluster: Any, oid: entrepot.ObjectID) -> dict[str, Life]:
    with open_directory(cluster.url) as directory:
        return {place.instance.host: place.life for place in directory.places([oid.binary])[0].entries}


def test_a_copy_of_what_was_replaced_since_is_not_what_the_id_means(
    cluster: Any, wait_until: Callable[..., None]
) -> None:
    a, b, c = cluster.host("a"), cluster.host("b", gateway=False), cluster.host("c")
    oid = a.store.put("old")
    a.store.publish(oid)
    start_doomed_gateway(b)
    reader = reading(b, oid)
    b.wait_gateway()
    assert b.store.get(oid, remote=False) == "old"
    origin = origin_of(b.store, oid)
    assert origin is not None
    assert origin.generation == INTENDED
    a.store.put("new", id=oid, replace=True)
    a.store.publish(oid)
    b.start_gateway()
    b.store.put("published after that", name="later")
    later = b.store.resolve("later")
    wait_until(lambda: c.store.locate(later), "the store to be listed")
    assert set(lives_of(cluster, oid)) == {"a"}
    assert c.store.get(oid) == "new"
    reader.join(60)


@pytest.mark.parametrize("length", [10, 1_000_000], ids=["small", "large"])
def test_a_copy_is_never_newer_than_its_original(cluster: Any, wait_until: Callable[..., None], length: int) -> None:
    a, b, c = cluster.host("a"), cluster.host("b", gateway=False), cluster.host("c")
    reference = put_value(a.store, "key", np.arange(length))
    oid = reference.id
    a.store.publish(oid)
    start_doomed_gateway(b)
    reader = reading(b, oid)
    b.wait_gateway()
    assert b.store.get(oid, remote=False)[-1] == length - 1
    b.start_gateway()
    reader.join(60)
    life = Life(reference.instance, reference.generation)
    wait_until(lambda: lives_of(cluster, oid) == {"a": life, "b": life}, "the copy to be published as one")
    origin = origin_of(b.store, oid)
    assert origin is not None
    assert (origin.generation, origin.role) == (b.store.info(oid).generation, Role.READ)
    a.kill()
    wait_until(lambda: not cluster.instances()["a"], "the lease to end")
    assert get_value(reference, address=c.address)[-1] == length - 1  # from the copy


def test_what_somebody_else_put_there_is_no_copy(cluster: Any, wait_until: Callable[..., None]) -> None:
    a, b = cluster.host("a"), cluster.host("b", gateway=False)
    oid = a.store.put("value")
    a.store.publish(oid)
    life = Life(a.store.instance_id, a.store.info(oid).generation)
    record = record_of(b.store, oid, Origin(INTENDED, (life,), Role.READ))  # as a gateway killed before its seal
    raw_objects.put_small(b.store, [record])
    b.store.put("other", id=oid, name="other")
    b.start_gateway()
    own = Life(b.store.instance_id, b.store.info(oid).generation)
    wait_until(lambda: lives_of(cluster, oid) == {"a": life, "b": own}, "the object to be published as another one")
    assert origin_of(b.store, oid) is None
    assert b.store.get(oid) == "other"
