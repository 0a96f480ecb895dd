"""A name that is rebound while its value is being read."""

from __future__ import annotations

from collections.abc import Iterator

import entrepot
import pytest


def rebinding(store: entrepot.Store, monkeypatch: pytest.MonkeyPatch, times: int) -> Iterator[int]:
    """Between resolving the name and getting its value, rebind the name to another value and delete the former one."""
    resolve = store.resolve
    left = iter(range(times))

    def and_rebind(name: str, *, timeout: float | None = 0, remote: bool = True) -> entrepot.ObjectID:
        oid = resolve(name, timeout=timeout, remote=remote)
        number = next(left, None)
        if number is not None:
            store.put({"value": number}, name=name, replace=True)
            store.delete(oid)
        return oid

    monkeypatch.setattr(store, "resolve", and_rebind)
    return left


@pytest.mark.parametrize("timeout", [0, 60, None])
def test_the_value_that_the_name_means_now_is_got(
    store: entrepot.Store, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    store.put({"value": "first"}, name="latest")
    left = rebinding(store, monkeypatch, 3)
    assert store.get_by_name("latest", timeout=timeout) == {"value": 2}
    assert next(left, None) is None


def test_a_name_that_is_gone_is_said_to_be(store: entrepot.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put({"value": "first"}, name="latest")
    resolve = store.resolve

    def and_delete(name: str, *, timeout: float | None = 0, remote: bool = True) -> entrepot.ObjectID:
        oid = resolve(name, timeout=timeout, remote=remote)
        store.delete(oid)
        return oid

    monkeypatch.setattr(store, "resolve", and_delete)
    with pytest.raises(entrepot.ObjectNotFound, match="latest"):
        store.get_by_name("latest")
    store.put({"value": "again"}, name="latest")
    with pytest.raises(entrepot.Timeout, match="latest"):
        store.get_by_name("latest", timeout=0.05)
