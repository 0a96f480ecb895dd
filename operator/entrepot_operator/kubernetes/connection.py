"""Connections to the API server, direct or through a proxy, with the name that its certificate is checked against."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from entrepot_operator.kubernetes.proxies import Proxy

if TYPE_CHECKING:
    from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials

_PORTS = {"http": 80, "https": 443}


class Connection:
    """One HTTP/1.1 connection to an API server.

    Args:
        access: which server.
        timeout: seconds of silence before it fails.

    Raises:
        InvalidArgument: a certificate or the proxy cannot be used.
    """

    def __init__(self, access: ClusterCredentials, timeout: float) -> None:
        parts = urlsplit(access.server)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        named = f"[{host}]" if ":" in host else host
        self.proxy: Proxy | None = access.proxy()
        self.identity = access.identity  # of the client certificate that the connection was made with
        self._host_header = named if port == _PORTS[parts.scheme] else f"{named}:{port}"
        self._before_target = ""
        self._for_proxy: Mapping[str, str] = {}
        to = (host, port) if self.proxy is None else (self.proxy.host, self.proxy.port)
        if parts.scheme == "https":
            self.http: http.client.HTTPConnection = _Secured(*to, timeout, access.tls(), access.tls_name or host)
            if self.proxy is not None:
                self.http.set_tunnel(named, port, dict(self.proxy.headers))
        else:
            self.http = http.client.HTTPConnection(*to, timeout=timeout)
            if self.proxy is not None:
                self._before_target = f"http://{self._host_header}"
                self._for_proxy = self.proxy.headers

    def send(self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None = None) -> None:
        """Send a request; header names may repeat.

        Args:
            method, target: such as ``GET`` and ``/api/v1/nodes?limit=5``.
            headers: in addition to ``Host`` and ``Content-Length``.
            body: None: no body.

        Raises:
            OSError, http.client.HTTPException: it could not be sent.
        """
        self.http.putrequest(method, self._before_target + target, skip_host=True)
        self.http.putheader("Host", self._host_header)
        for name, value in (*self._for_proxy.items(), *headers):
            self.http.putheader(name, value.encode("utf-8"))
        if body is not None:
            self.http.putheader("Content-Length", str(len(body)))
        self.http.endheaders(body)

    def close(self) -> None:
        """Close the connection."""
        self.http.close()


class _Secured(http.client.HTTPConnection):
    """A TLS connection whose certificate is checked against an explicit name, optionally through a tunnel.

    ``http.client.HTTPSConnection`` would check it against the host that it connects to.
    """

    default_port = 443

    def __init__(self, host: str, port: int, timeout: float, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=timeout)
        self._secured_by = context
        self._secured_as = name

    def connect(self) -> None:
        """Connect, open the proxy's tunnel if there is one, and start TLS with the API server."""
        super().connect()
        self.sock = self._secured_by.wrap_socket(self.sock, server_hostname=self._secured_as)


def encoded(body: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bytes:
    """Encode a body as JSON."""
    return json.dumps(body, separators=(",", ":")).encode()
