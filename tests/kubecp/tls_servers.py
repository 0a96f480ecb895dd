"""API server over TLS, and a proxy in front of it, on loopback: they record who asked, and over which route."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from kubecp_keys import Authority

NODE = "/api/v1/nodes/a"
SECONDS = 30.0
PROXY_VARIABLES = [
    name for variable in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY") for name in (variable, variable.lower())
]
PLUGIN_VERSION = "client.authentication.k8s.io/v1"


class LoopbackServer:
    """A server on loopback."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(SECONDS)


class Cluster(LoopbackServer):
    """API server for the name ``api.example``; records who sent each request, and with which headers.

    Attributes:
        requests: headers of each request, and the common name in the client's certificate.
        refused: number of further requests to answer with 401.
        context: its side of TLS, for other servers of the same name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = Authority(folder)
        self._authority.server("server", ["api.example"])
        self.requests: list[tuple[Message, str | None]] = []
        self.refused = 0
        this = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                assert isinstance(self.connection, ssl.SSLSocket)
                shown: Any = self.connection.getpeercert()
                names = dict(pair for part in (shown or {}).get("subject", ()) for pair in part)
                this.requests.append((self.headers, names.get("commonName")))
                text = json.dumps({"metadata": {"name": "a"}}).encode()
                status = 200
                if this.refused:
                    this.refused, status = this.refused - 1, 401
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self.context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        context.load_verify_locations(self._authority.file)
        context.verify_mode = ssl.CERT_OPTIONAL
        super().__init__(Handler, context)

    def presented(self) -> list[tuple[str | None, str | None]]:
        """Of each request, the Authorization header and the name in the client certificate; forgets the requests."""
        credentials = [(headers["Authorization"], name) for headers, name in self.requests]
        self.requests.clear()
        return credentials

    def certificate(self, user: str) -> dict[str, str]:
        """A client certificate in the form in which exec plugins print it."""
        self._authority.client(user, user)
        texts = ((self._folder / f"{user}.{kind}").read_text() for kind in ("crt", "key"))
        return dict(zip(("clientCertificateData", "clientKeyData"), texts, strict=True))

    def kubeconfig(self, otherwise: dict[str, Any] | None = None, *, user: dict[str, Any] | None = None) -> str:
        """A kubeconfig for this server; ``otherwise`` overrides fields of the cluster's entry."""
        server = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": "ca.crt",
            "tls-server-name": "api.example",
        }
        path = self._folder / "config"
        path.write_text(kubeconfig_text({"token": "secret"} if user is None else user, server | (otherwise or {})))
        return str(path)

    def send_request(self, otherwise: dict[str, Any] | None = None, *, user: dict[str, Any] | None = None) -> Message:
        """Send a request using a kubeconfig; returns the headers that the server received."""
        api = Api(find(self.kubeconfig(otherwise, user=user)), patience=0)
        try:
            assert api.get(NODE)["metadata"]["name"] == "a"
        finally:
            api.close()
        return self.requests[-1][0]


def kubeconfig_text(user: dict[str, Any], server: dict[str, Any]) -> str:
    """A kubeconfig with one user and one cluster."""
    return json.dumps(
        {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": user}],
        }
    )


class HttpProxy(LoopbackServer):
    """A proxy that tunnels to one port, whatever name is requested.

    Attributes:
        tunnels: target of each tunnel, and the Proxy-Authorization header.
    """

    def __init__(self, port: int) -> None:
        self.tunnels: list[tuple[str, str | None]] = []
        this = self

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                this.tunnels.append((self.path, self.headers.get("Proxy-Authorization")))
                with socket.create_connection(("127.0.0.1", port), SECONDS) as to:
                    self.send_response(200)
                    self.end_headers()
                    back = threading.Thread(target=_pump, args=(to, self.connection), daemon=True)
                    back.start()
                    _pump(self.connection, to)
                    back.join(SECONDS)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        super().__init__(Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def _pump(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            to.sendall(data)
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)


def plugin(folder: Path, *printed: dict[str, Any]) -> dict[str, Any]:
    """A kubeconfig user whose exec plugin prints these credentials one after the other, then repeats the last."""
    for index, output in enumerate(printed):
        (folder / f"printed-{index}").write_text(
            json.dumps({"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": output})
        )
    program = folder / "login"
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, pathlib, sys\n"
        "here = pathlib.Path(__file__).parent\n"
        "(here / 'exec-info').write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "count = len(list(here.glob('ran-*')))\n"
        "(here / f'ran-{count}').touch()\n"
        f"sys.stdout.write((here / f'printed-{{min(count, {len(printed) - 1})}}').read_text())\n"
    )
    program.chmod(0o700)
    return {"exec": {"apiVersion": PLUGIN_VERSION, "command": "./login", "provideClusterInfo": True}}
