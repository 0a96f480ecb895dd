"""The tracer, and the export of spans by a process that has no tracer provider of its own.

Spans are exported one by one as they end, because tasks' processes end without notice: Airflow's and multiprocessing's
by ``os._exit``, others by a signal. A collector that does not answer costs each span at most ``EXPORT_SECONDS``.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from entrepot.errors import InvalidArgument

from entrepot_io.tracing import switch

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

EXPORT_SECONDS = 1.0
_NAME = "entrepot"

_lock = threading.Lock()
_tracer: Tracer | None = None  # guarded by _lock


def tracer() -> Tracer:
    """Return the tracer of this process.

    Raises:
        InvalidArgument: OpenTelemetry is not installed, or the mode is wrong.
    """
    global _tracer
    with _lock:
        if _tracer is None:
            _tracer = _new_tracer(switch.mode())
        return _tracer


def _new_tracer(mode: str) -> Tracer:
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise InvalidArgument(
            f"{switch.VARIABLE}={mode} needs opentelemetry-api: pip install 'entrepot[traces]'"
        ) from error
    if mode == switch.OTLP and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        _export_by_otlp()
    return trace.get_tracer(_NAME)


def _export_by_otlp() -> None:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    except ImportError as error:
        raise InvalidArgument(
            f"{switch.VARIABLE}={switch.OTLP} needs OpenTelemetry's SDK and its exporter over HTTP: "
            "pip install 'entrepot[traces]'"
        ) from error
    from opentelemetry import trace

    own_name = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: _NAME}
    provider = TracerProvider(resource=Resource.create(own_name))
    own_timeout = {"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"} & os.environ.keys()
    exporter = OTLPSpanExporter() if own_timeout else OTLPSpanExporter(timeout=EXPORT_SECONDS)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
