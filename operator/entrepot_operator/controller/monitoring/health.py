"""``/healthz``, ``/readyz`` and ``/metrics`` over plain HTTP."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_operator.controller.monitoring.metrics import CONTENT_TYPE

REQUEST_SECONDS = 5.0
TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"


class HealthServer:
    """Answers probes and scrapes, in threads of its own.

    Args:
        host: to listen on.
        port: 0: any free one.
        healthy, ready: return what is wrong; nothing if all is well.
        metrics: returns the text for ``/metrics``.

    Raises:
        InvalidArgument: the address cannot be listened on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        healthy: Callable[[], list[str]],
        ready: Callable[[], list[str]],
        metrics: Callable[[], str],
    ) -> None:
        probes = {"/healthz": healthy, "/readyz": ready}

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_SECONDS

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._respond(200, metrics(), CONTENT_TYPE)
                elif path in probes:
                    problems = probes[path]()
                    self._respond(503 if problems else 200, "\n".join(problems or ["ok"]) + "\n", TEXT_CONTENT_TYPE)
                else:
                    self._respond(404, "not found; available are /healthz, /readyz and /metrics\n", TEXT_CONTENT_TYPE)

            def _respond(self, status: int, text: str, content_type: str) -> None:
                body = text.encode()
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
