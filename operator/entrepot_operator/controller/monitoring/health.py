"""``/healthz``, ``/readyz`` and ``/metrics`` over plain HTTP."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from entrepot.errors import InvalidArgument
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

REQUEST_SECONDS = 5.0
TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"


class HealthServer:
    """Answers probes and scrapes, in threads of its own.

    Args:
        host: to listen on.
        port: 0: any free one.
        healthy, ready: return what is wrong; nothing if all is well.
        metrics: collects what ``/metrics`` shows, in the format that the scraper accepts.

    Raises:
        InvalidArgument: the address cannot be listened on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        healthy: Callable[[], list[str]],
        ready: Callable[[], list[str]],
        metrics: Collector,
    ) -> None:
        probes = {"/healthz": healthy, "/readyz": ready}

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_SECONDS

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._respond(200, *_encoded(metrics, self.headers.get("Accept", "")))
                elif path in probes:
                    problems = probes[path]()
                    self._respond(503 if problems else 200, _lines(problems or ["ok"]), TEXT_CONTENT_TYPE)
                else:
                    text = "not found; available are /healthz, /readyz and /metrics"
                    self._respond(404, _lines([text]), TEXT_CONTENT_TYPE)

            def _respond(self, status: int, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *_: Any) -> None:
                """Do not log the frequent probes."""

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

        try:
            self._server = Server((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise InvalidArgument(f"cannot serve health and metrics on {host}, port {port}: {error}") from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _lines(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _encoded(metrics: Collector, accept: str) -> tuple[bytes, str]:
    """The metrics, and the content type: OpenMetrics for those who ask for it, else Prometheus' text format."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is not of numbers
        encode, content_type = choose_encoder("")
    return encode(metrics), content_type
