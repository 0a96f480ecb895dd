"""The HTTP server of ``entrepot metrics``: a thread a scrape, and a bound on requests that are never finished."""

from __future__ import annotations

import logging
import socket
import socketserver
import sys
import threading
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

log = logging.getLogger(__name__)
MAX_CONNECTIONS = 50  # a scrape takes milliseconds; whoever has been connected longest is closed for the next one
READ_TIMEOUT = 5.0  # seconds


class MetricsServer(socketserver.ThreadingMixIn, WSGIServer):
    """Serves the metrics of a registry.

    Args:
        host, port: where to listen; port 0: any that is free.
        registry: what is collected.

    Raises:
        OSError: it is not possible to listen there.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._lock = threading.Lock()
        self._open: dict[Any, None] = {}  # connections, the oldest first; guarded by _lock
        super().__init__((host, port), _Handler)
        self.set_app(make_wsgi_app(registry))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, and close the oldest connection if there are too many."""
        with self._lock:
            self._open[request] = None
            if len(self._open) > MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                _end(oldest)  # its thread reads the end of the request, and closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of a connection as one line: the client has ended it, or did not finish its request in time."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            log.info("the scrape from %s was not finished: %s", client_address[0], error)
        else:
            log.error("the scrape from %s failed", client_address[0], exc_info=error)


class _Handler(WSGIRequestHandler):
    timeout = READ_TIMEOUT  # of each read

    def log_message(self, format: str, *args: Any) -> None:
        """Log no scrapes."""


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other side has ended it already
