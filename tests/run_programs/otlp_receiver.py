"""Receives what is exported over OTLP (HTTP, protobuf), as a collector does, and keeps it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Span:
    """A span that was received.

    Attributes:
        name: such as ``"entrepot put"``.
        trace, id, parent: hexadecimal; the parent of a root is empty.
        links: IDs of the spans that it has links to.
        attributes: its attributes.
        failed: whether it ended with an error.
        service: ``service.name`` of its process.
    """

    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    attributes: dict[str, Any]
    failed: bool
    service: str


@dataclass
class Receiver:
    """A collector.

    Attributes:
        port: where it listens, on loopback.
        bodies: what was sent to each path.
    """

    port: int
    bodies: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])

    @property
    def endpoint(self) -> str:
        """For ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        return f"http://127.0.0.1:{self.port}"

    def spans(self, name: str | None = None) -> list[Span]:
        """All spans, or those of one name, in the order in which they arrived."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        spans: list[Span] = []
        for body in list(self.bodies.get("/v1/traces", ())):
            request: Any = ExportTraceServiceRequest()
            request.ParseFromString(body)
            for resource in request.resource_spans:
                service = _attributes(resource.resource.attributes).get("service.name", "")
                spans += [_span(each, service) for scope in resource.scope_spans for each in scope.spans]
        return [span for span in spans if name in (None, span.name)]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A collector that listens on loopback."""
    receiver = Receiver(0)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.headers.get("content-encoding") in (None, "identity")
            receiver.bodies.setdefault(self.path, []).append(body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: what arrived is in ``bodies``."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


def _span(span: Any, service: str) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple(link.span_id.hex() for link in span.links),
        _attributes(span.attributes),
        span.status.code == 2,
        service,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
