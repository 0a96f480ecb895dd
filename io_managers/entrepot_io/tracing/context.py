"""How the context of a trace gets from one process to the next.

* With a reference: its field ``traceparent``, as W3C Trace Context has it, is the span of the put.
* With a value that is read by its key: a record beside it, in the session of a run.
* With a run: a record in its session, the context of the run's first span. What has no other parent is its child.

A record that cannot be written or read is a warning, and a trace that ends there; it never makes a task fail.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import EntrepotError, ObjectExists
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from entrepot_io.plain_log import plain_logger
from entrepot_io.tracing.exporting import tracer

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.ids import ObjectID
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext

log = plain_logger(__name__)
_FIELD = "traceparent"
_RUN_KEY = "entrepot.trace"
_ORCHESTRATORS = ("airflow", "dagster", "kedro")
_MAX_RUNS = 256  # that this process remembers
_PROPAGATOR = TraceContextTextMapPropagator()

_lock = threading.Lock()
_runs: OrderedDict[tuple[str, str, str], Context] = OrderedDict()  # guarded by _lock; by instance, scope and session
_run_of_task: ContextVar[Callable[[], Store] | None] = ContextVar("entrepot_run_of_task", default=None)


@contextmanager
def in_run(open_run: Callable[[], Store]) -> Iterator[None]:
    """Within the block, values of any session belong to a run.

    Args:
        open_run: opens the run's session.
    """
    token = _run_of_task.set(open_run)
    try:
        yield
    finally:
        _run_of_task.reset(token)


def current_traceparent() -> str | None:
    """The context of the current span, as text; None: there is none."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get(_FIELD)


def parse_traceparent(text: str) -> Context | None:
    """The context that a text describes; None: it describes none."""
    context = _PROPAGATOR.extract({_FIELD: text})
    return context if span_context(context).is_valid else None


def span_context(context: Context) -> SpanContext:
    """The span of a context."""
    return trace.get_current_span(context).get_span_context()


def has_own_span() -> bool:
    """Whether the orchestrator, or the task's own code, has a span here that is to be continued."""
    return trace.get_current_span().get_span_context().is_valid


def record_put(store: Store, oid: ObjectID, traceparent: str) -> None:
    """Record the context of a value that will be read by its key."""
    if not store.session_name:
        return
    try:
        raw_objects.put_record(store, _value_key(store, oid), traceparent.encode())
    except EntrepotError as error:
        log.warning("Entrepot: cannot record the trace of %s; its readers begin another: %s", oid, error)


def recorded_put(store: Store, oid: ObjectID) -> Context | None:
    """Return the context of a value's put; None: it was put without one."""
    return _read(store, _value_key(store, oid)) if store.session_name else None


def discard_put(store: Store, oid: ObjectID) -> None:
    """Forget the context of a value that is deleted.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    if store.session_name:
        raw_objects.discard(store, _value_key(store, oid))


def run_context(store: Store) -> Context | None:
    """Return the context of the run that a value belongs to, which the run's first span begins; None: it has no run."""
    open_run = _run_of_task.get()
    try:
        if open_run is not None:
            store = open_run()
        elif not _is_run(store.session_name):
            return None
        key = (store.instance_id, store.scope, store.session_name)
        with _lock:
            context = _runs.get(key)
            if context is None:
                context = _runs[key] = _find_or_begin(store)
                if len(_runs) > _MAX_RUNS:
                    _runs.popitem(last=False)
        return context
    except EntrepotError as error:
        log.warning("Entrepot: cannot find the trace of this run, and another one begins: %s", error)
        return None


def _find_or_begin(store: Store) -> Context:
    oid = store.derive(_RUN_KEY)
    if (context := _read(store, oid)) is not None:
        return context
    attributes = {"entrepot.scope": store.scope, "entrepot.session": store.session_name}
    span = tracer().start_span("entrepot run", trace.set_span_in_context(trace.INVALID_SPAN), attributes=attributes)
    context = trace.set_span_in_context(span)
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    try:
        raw_objects.put_record(store, oid, carrier.get(_FIELD, "").encode(), replace=False)
    except ObjectExists:  # another process began the run meanwhile; this span is not ended, and so not exported
        return _read(store, oid) or context
    span.end()
    return context


def _read(store: Store, oid: ObjectID) -> Context | None:
    try:
        record = raw_objects.get_record(store, oid)
    except EntrepotError as error:
        log.warning("Entrepot: cannot read the context of a trace: %s", error)
        return None
    return None if record is None else parse_traceparent(record.decode(errors="replace"))


def _is_run(session: str) -> bool:
    orchestrator, _, run = session.partition("/")
    return orchestrator in _ORCHESTRATORS and bool(run) and not session.startswith("dagster/ephemeral")


def _value_key(store: Store, oid: ObjectID) -> ObjectID:
    return store.derive(f"{_RUN_KEY}/{oid}")


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
