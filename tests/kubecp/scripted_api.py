"""An API server that follows a script: it answers lists and watches as a real one rarely does."""

from __future__ import annotations

import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials
from entrepot_operator.kubernetes.official import Configuration

Event = tuple[str, dict[str, Any]]


def without_credentials(url: str, namespace: str = "default") -> ClusterCredentials:
    """Access to a server that asks for no credentials."""
    return ClusterCredentials(Configuration(host=url), namespace)


def thing(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class ScriptedApiServer:
    """A server that answers lists and watches from a script, in order, and then keeps watches open.

    Attributes:
        lists: pages of each list, or a status; the last entry is repeated.
        watches: events of each watch, or a status; watches beyond the last entry are silent.
        list_queries, watch_queries: the query of each page of a list, and of each watch.
    """

    def __init__(self) -> None:
        self.lists: list[list[dict[str, Any]] | int] = []
        self.watches: list[list[Event] | int] = []
        self.list_queries: list[dict[str, str]] = []
        self.watch_queries: list[dict[str, str]] = []
        self.listed = 0
        self._ended = threading.Event()
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
                if "things" not in self.path:
                    self._respond(404, {"kind": "Status", "message": "not found"})
                elif "watch" in query:
                    script.watch_queries.append(query)
                    self._watch(script.watches.pop(0) if script.watches else None)
                else:
                    self._list(query)

            def _list(self, query: dict[str, str]) -> None:
                script.list_queries.append(query)
                answer = script.lists[0]
                if isinstance(answer, int):
                    if len(script.lists) > 1:
                        script.lists.pop(0)
                    self._respond(answer, {"kind": "Status", "message": "no"})
                    return
                place = int(query.get("continue", "0"))
                rest = {"continue": str(place + 1)} if place + 1 < len(answer) else {}
                if not rest:
                    script.listed += 1
                    if len(script.lists) > 1:
                        script.lists.pop(0)
                self._respond(200, {**answer[place], "metadata": {"resourceVersion": "10", **rest}})

            def _watch(self, events: list[Event] | int | None) -> None:
                if isinstance(events, int):
                    self._respond(events, {"kind": "Status", "code": events, "message": "no"})
                    return
                self.send_response_only(200)
                self.send_header("Connection", "close")
                self.end_headers()
                for kind, resource in events or []:
                    self.wfile.write(json.dumps({"type": kind, "object": resource}).encode() + b"\n")
                if events is None:
                    script._ended.wait(30)
                self.close_connection = True

            def _respond(self, status: int, content: Any) -> None:
                body = json.dumps(content).encode()
                self.send_response_only(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def connect(self) -> Api:
        return Api(without_credentials(self.url), patience=0)

    def stop(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
