"""Spans of puts, gets, reloads and reruns. Import this only where :func:`~entrepot_io.tracing.switch.is_on`.

A span is a child of the process's current span, such as that of Airflow's task, if there is one; else a get is a child
of the value's put, and everything else of its run. A get that is a child of something else has a link to the put.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from entrepot.errors import ObjectNotFound
from opentelemetry.trace import Link, SpanKind

from entrepot_io.reference import Reference
from entrepot_io.tracing import context as contexts
from entrepot_io.tracing.exporting import tracer

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.ids import ObjectID

T = TypeVar("T")


def traced_put(store: Store, key: str | None, put: Callable[[], Reference]) -> Reference:
    """Put a value within a span, whose context the returned reference has.

    Args:
        store: the session that it belongs to.
        key: its logical key; None: it is read by its reference only.
        put: puts it.
    """
    parent = None if contexts.has_own_span() else contexts.run_context(store)
    with tracer().start_as_current_span("entrepot put", parent, SpanKind.PRODUCER, _place(store, key)) as span:
        reference = put()
        span.set_attributes(
            {
                "entrepot.id": str(reference.id),
                "entrepot.generation": reference.generation,
                "entrepot.type": reference.type,
                "entrepot.bytes": reference.nbytes,
            }
        )
        traceparent = contexts.current_traceparent()
        if traceparent is not None and key is not None:
            contexts.record_put(store, reference.id, traceparent)
    return replace(reference, traceparent=traceparent)


def traced_get(store: Store, oid: ObjectID, key: str | None, reference: Reference | None, get: Callable[[], T]) -> T:
    """Get a value within a span, with another one in it if the value is reloaded from disk.

    Args:
        store: the session that it belongs to.
        oid: its ID.
        key: its logical key.
        reference: the reference, if the reader has it.
        get: gets it.
    """
    text = reference.traceparent if reference is not None else None
    put = contexts.recorded_put(store, oid) if text is None else contexts.parse_traceparent(text)
    parent = None if contexts.has_own_span() else (put or contexts.run_context(store))
    links = [Link(contexts.span_context(put))] if put is not None and parent is None else []
    attributes = {**_place(store, key), "entrepot.id": str(oid)}
    with tracer().start_as_current_span("entrepot get", parent, SpanKind.CONSUMER, attributes, links) as span:
        if reference is not None:
            span.set_attributes({"entrepot.type": reference.type, "entrepot.bytes": reference.nbytes})
            span.set_attribute("entrepot.from_host", reference.host)
        spilled = _spilled_bytes(store, oid)
        if spilled is None:
            return get()
        with tracer().start_as_current_span("entrepot reload", attributes={"entrepot.bytes": spilled}):
            return get()


@contextmanager
def rerun_span(store: Store, tasks: Sequence[str], rule: str) -> Iterator[None]:
    """Within the block, tasks are run again, or their rerun is requested.

    Args:
        store: the session of the value that is missing.
        tasks: what is run again.
        rule: that decided it.
    """
    parent = None if contexts.has_own_span() else contexts.run_context(store)
    attributes = {**_place(store, None), "entrepot.tasks": list(tasks), "entrepot.rule": rule}
    with tracer().start_as_current_span("entrepot rerun", parent, attributes=attributes):
        yield


def _place(store: Store, key: str | None) -> dict[str, str]:
    place = {"entrepot.scope": store.scope, "entrepot.session": store.session_name, "entrepot.host": store.host}
    return place if key is None else {**place, "entrepot.key": key}


def _spilled_bytes(store: Store, oid: ObjectID) -> int | None:
    try:
        info = store.info(oid)
    except ObjectNotFound:  # in another store, or lost: the get says so
        return None
    return info.nbytes if info.state == "spilled" else None
