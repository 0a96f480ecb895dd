"""Passing a value from one task to the next: the only place where values are written, read and deleted.

The life of a value::

    put_value --> (referenced) --get_value--> (read, any number of times)
                       |
                       +-- put_value of a retry: same ID, next generation; the old reference reads ObjectLost
                       +-- delete_value, or the end of its session: the reference reads ObjectLost

An orchestrator that stores references (Airflow) reads with :func:`get_value`, which checks every field of the
reference. One that derives the key from its own names (Dagster, Kedro) reads with :func:`get_by_key`; if it has a
record of where the value was written, that is checked too. Neither ever returns a value it is not sure of.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot._client import gateway_calls
from entrepot._daemon import kubernetes_env
from entrepot.codec import CopyMode
from entrepot.errors import DirectoryUnavailable, ObjectLost, ObjectNotFound, StoreUnavailable, VersionMismatch
from entrepot.origins import Life, copy_of, origin_of
from entrepot.phrases import session_phrase

from entrepot_io.connections import scope_store, session_store
from entrepot_io.keys import object_name
from entrepot_io.reference import Reference
from entrepot_io.tracing import switch as tracing
from entrepot_io.type_info import shape_of, type_name
from entrepot_io.usage_hints import UsageHints

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.ids import ObjectID

COPY_ATTEMPTS = 3  # to read a copy that is replaced or deleted while it is read


def put_value(
    store: Store, key: str | None, value: Any, *, replace: bool = True, usage_hints: UsageHints | None = None
) -> Reference:
    """Write a value and return a reference to it.

    Args:
        store: the session it belongs to.
        key: its logical key (:mod:`entrepot_io.keys`), from which its ID is derived; ``None`` for a random ID.
        value: anything that a codec accepts.
        replace: whether to replace a value that an earlier attempt wrote under this key. If false, identical content is
            success and different content an error.
        usage_hints: the locality set it belongs to; default: the session's.

    Raises:
        ObjectExists: ``replace`` is false and the key holds different content.
        StoreFull: it does not fit.
        UnsupportedType: no codec accepts it.
        StoreUnavailable: the store cannot be reached.
    """
    if tracing.is_on():
        from entrepot_io.tracing.spans import traced_put

        return traced_put(store, key, lambda: _put(store, key, value, replace, usage_hints))
    return _put(store, key, value, replace, usage_hints)


def _put(store: Store, key: str | None, value: Any, replace: bool, usage_hints: UsageHints | None) -> Reference:
    locality_set = None if usage_hints is None else usage_hints.apply_to(store)
    if key is None:
        result = store.put_versioned(value, locality_set=locality_set)
    else:
        result = store.put_versioned(
            value, id=store.derive(key), name=object_name(key), replace=replace, locality_set=locality_set
        )
    return Reference(
        scope=store.scope,
        session=store.session_name,
        id=result.id,
        generation=result.generation,
        instance=store.instance_id,
        host=store.host,
        type=type_name(value),
        nbytes=result.nbytes,
        shape=shape_of(value),
        key=key,
    )


def get_value(reference: Reference, *, address: str | None = None, copy: CopyMode = "never") -> Any:
    """Read exactly the value that a reference names.

    Args:
        reference: as returned by :func:`put_value`.
        address: of the store; ``None`` for the one that ``entrepot.connect`` finds.
        copy: ``"never"`` for a read-only view, ``"on_write"`` or ``"always"`` for a writable value.

    Raises:
        ObjectLost: the value lives in another store (the message names its host) and could not be fetched from there,
            no longer exists, or was replaced by a later attempt of the task that wrote it.
        StoreUnavailable: the store cannot be reached.
    """
    # Read within the value's own session, so that the read counts as a use of the session and extends its life.
    store = session_store(address, reference.scope, reference.session, None)
    if tracing.is_on():
        from entrepot_io.tracing.spans import traced_get

        return traced_get(store, reference.id, reference.key, reference, lambda: _get(store, reference, copy))
    return _get(store, reference, copy)


def _get(store: Store, reference: Reference, copy: CopyMode) -> Any:
    if _restored_from_durable(store, reference):
        return store.get(reference.id, copy=copy)
    if (fetched := fetched_from_cluster(store, reference)) is not None:
        return _get_copy(store, reference, fetched, copy)
    check_instance(store, reference)
    try:
        value, generation = store.get_versioned(reference.id, copy=copy, remote=False)
    except ObjectNotFound as error:
        moved = _fetch(store, reference)
        if moved is None:
            raise _lost_error(reference) from error
        return _get_copy(store, reference, moved, copy)
    if generation != reference.generation:
        if (moved := _moved_away(store, reference)) is not None:
            return _get_copy(store, reference, moved, copy)
        raise ObjectLost(
            f"{reference} was replaced by a later attempt of the task that wrote it (generation "
            f"{reference.generation} was requested, but {generation} is stored): read the reference that the later "
            "attempt returned, or rerun the reader"
        )
    return value


def get_values(references: Sequence[Reference], *, address: str | None = None, copy: CopyMode = "never") -> list[Any]:
    """Read exactly the values that references name; those of other hosts in one request to each of these.

    Args, errors: as for :func:`get_value`.
    """
    by_session: dict[tuple[str, str], list[Reference]] = {}
    for reference in references:
        by_session.setdefault((reference.scope, reference.session), []).append(reference)
    for (scope, session), of_session in by_session.items():
        store = session_store(address, scope, session, None)
        elsewhere = _elsewhere(store, of_session)
        if len(elsewhere) > 1 and store.durable is None:  # what cannot be fetched is reported by whoever reads it
            gateway_calls.fetch_lives(store._raw(), elsewhere)  # pyright: ignore[reportPrivateUsage]
    return [get_value(reference, address=address, copy=copy) for reference in references]


def prefetch_values(references: Sequence[Reference], *, address: str | None = None) -> None:
    """Start fetching values from other hosts, and loading others from this host's disk, without waiting.

    For whoever knows what a task will read, before it does. Values that are lost, and hosts without a gateway, are
    ignored: reading reports them.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    by_scope: dict[str, list[Reference]] = {}
    for reference in references:
        by_scope.setdefault(reference.scope, []).append(reference)
    for scope, of_scope in by_scope.items():
        store = scope_store(address, scope)
        here = [reference.id for reference in of_scope if _is_in_store(store, reference)]
        if here:
            store.prefetch(*here)
        gateway_calls.prefetch_lives(
            store._raw(),  # pyright: ignore[reportPrivateUsage]
            _elsewhere(store, of_scope),
        )


def is_at_hand(reference: Reference, *, address: str | None = None) -> bool:
    """Whether exactly this value, or a copy of it, is in this host's store.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    store = scope_store(address, reference.scope)
    return (
        _is_in_store(store, reference)
        or copy_of(
            store, reference.id, Life(reference.instance, reference.generation), (reference.scope, reference.session)
        )
        is not None
    )


def _elsewhere(store: Store, references: Sequence[Reference]) -> list[tuple[ObjectID, Life]]:
    """What of this is in other stores, and not here as a copy."""
    lives: dict[tuple[ObjectID, Life], None] = {}
    for reference in references:
        life = Life(reference.instance, reference.generation)
        place = (reference.scope, reference.session)
        if (
            store.instance_id != reference.instance
            and not _is_in_store(store, reference)
            and copy_of(store, reference.id, life, place) is None
        ):
            lives[reference.id, life] = None
    return list(lives)


def get_by_key(store: Store, key: str, *, copy: CopyMode = "never", recorded: Reference | None = None) -> Any:
    """Read the value last written under a key.

    Args:
        store: the session it belongs to.
        key: its logical key.
        copy: as for :func:`get_value`.
        recorded: the reference that the orchestrator kept when the value was written, if it did.

    Raises:
        ObjectNotFound: nothing is known to have been written under this key.
        ObjectLost: it was written, but lives in another store or no longer exists.
        StoreUnavailable: the store cannot be reached.
    """
    if tracing.is_on():
        from entrepot_io.tracing.spans import traced_get

        return traced_get(store, store.derive(key), key, recorded, lambda: _get_by_key(store, key, copy, recorded))
    return _get_by_key(store, key, copy, recorded)


def _get_by_key(store: Store, key: str, copy: CopyMode, recorded: Reference | None) -> Any:
    if recorded is not None and not _restored_from_durable(store, recorded):
        if (fetched := fetched_from_cluster(store, recorded)) is not None:
            return _get_copy(store, recorded, fetched, copy)
        check_instance(store, recorded)
    oid = store.derive(key)
    try:
        return store.get(oid, copy=copy)
    except ObjectNotFound as error:
        if recorded is not None:
            raise _lost_error(recorded) from error
        raise ObjectNotFound(
            f"nothing is stored under the key {key!r} in {session_phrase(store.scope, store.session_name)} "
            f"(object {oid}) in the store of host {store.host!r}: it was never written, its session has ended, or it "
            "was written on another host; run the task that writes it"
        ) from error


def delete_value(reference: Reference, *, address: str | None = None) -> bool:
    """Delete the value that a reference names; current readers keep their view.

    Args:
        reference: as returned by :func:`put_value`.
        address: as for :func:`get_value`.

    Returns:
        Whether it existed. A value in another store, or of another generation, is left alone.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    store = scope_store(address, reference.scope)
    return _is_in_store(store, reference) and store.delete(reference.id)


def delete_by_key(store: Store, key: str) -> bool:
    """Delete the value written under a key; current readers keep their view.

    Returns:
        Whether it existed.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    oid = store.derive(key)
    if tracing.is_on():
        from entrepot_io.tracing.context import discard_put

        discard_put(store, oid)
    return store.delete(oid)


def key_exists(store: Store, key: str) -> bool:
    """Whether a value is stored under a key.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    return store.exists(store.derive(key))


def check_instance(store: Store, reference: Reference) -> None:
    """Reject a reference into another store.

    A store that recovered an earlier one's spilled objects holds them in the same generations; references to these are
    accepted.

    Raises:
        ObjectLost: names the host where the value lives.
    """
    if store.instance_id == reference.instance or _is_in_store(store, reference):
        return
    if reference.host == store.host:
        raise ObjectLost(
            f"{reference} is not in this store: most likely the store on this host {reference.host!r} that held it "
            f"ended or was killed, and this is a new one (instance {store.instance_id}; the old one was "
            f"{reference.instance}); rerun the task that wrote it. If the old store still runs at another address or "
            "as another user, this task uses the wrong store: set ENTREPOT_ADDRESS to that address"
        )
    raise _elsewhere_error(
        f"{reference} lives on host {reference.host!r} (instance {reference.instance}), but this task uses the store "
        f"of host {store.host!r}: run it on {reference.host!r}{_scheduling_advice(reference)}, or rerun the task that "
        "wrote it"
    )


def fetched_from_cluster(store: Store, reference: Reference) -> ObjectID | None:
    """Return the ID of a copy in this store of a value that lives in another one; it is fetched if it is not here yet.

    None: the value's own store is this one, or this one belongs to no cluster.

    Raises:
        ObjectLost: no store of the cluster that can be reached has it; the message says where it was, and since when
            that store is lost.
        StoreFull: it does not fit here.
    """
    if _is_in_store(store, reference):
        return None
    if (here := copy_of(store, reference.id, Life(reference.instance, reference.generation))) is not None:
        return here
    return None if store.instance_id == reference.instance else _fetch(store, reference)


def _get_copy(store: Store, reference: Reference, oid: ObjectID, copy: CopyMode) -> Any:
    """Return the value of a copy of what a reference names, and of nothing that has replaced it meanwhile."""
    life = Life(reference.instance, reference.generation)
    for _ in range(COPY_ATTEMPTS):
        try:
            value, generation = store.get_versioned(oid, copy=copy, remote=False)
        except ObjectNotFound:
            pass  # deleted, or expired, since it was found
        else:
            origin = origin_of(store, oid)
            if origin is not None and origin.generation == generation and life in origin.lives:
                return value
        again = _fetch(store, reference)
        if again is None:
            break
        oid = again
    raise _lost_error(reference)


def _fetch(store: Store, reference: Reference) -> ObjectID | None:
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    try:
        return gateway_calls.fetch_life(raw, reference.id, reference.instance, reference.generation)
    except (StoreUnavailable, VersionMismatch):
        return None
    except (ObjectNotFound, ObjectLost, DirectoryUnavailable) as error:
        raise _elsewhere_error(
            f"{reference} lives on host {reference.host!r}, and could not be fetched: {error}"
        ) from error


def _moved_away(store: Store, reference: Reference) -> ObjectID | None:
    """Return the ID of a copy here of what was moved to another store before its ID was written again; None: none."""
    with suppress(ObjectLost):
        return _fetch(store, reference)
    return None


def _scheduling_advice(reference: Reference) -> str:
    if not kubernetes_env.in_pod():
        return ""
    return f" (annotate its pod with entrepot.dev/requires: {reference.id} and entrepot.dev/locality: required)"


def _is_in_store(store: Store, reference: Reference) -> bool:
    same_store = store.instance_id == reference.instance or store.host == reference.host
    return same_store and raw_objects.generation_of(store, reference.id) == reference.generation


def _restored_from_durable(store: Store, reference: Reference) -> bool:
    """Whether exactly this value was reloaded from the durable tier because the store lacked it (as after a reboot)."""
    if store.durable is None or _is_in_store(store, reference):
        return False
    return store.recall(reference.id, life=(reference.instance, reference.generation))


def _elsewhere_error(text: str) -> ObjectLost:
    error = ObjectLost(text)
    error.may_come_back = True
    return error


def _lost_error(reference: Reference) -> ObjectLost:
    return ObjectLost(
        f"{reference} is no longer in the store of host {reference.host!r}: it was deleted, or its session ended; "
        "rerun the task that wrote it (ENTREPOT_SESSION_TTL sets how long the values of a run are kept)"
    )
