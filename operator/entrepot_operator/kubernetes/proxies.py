"""Finds the proxy between this machine and the API server, as ``kubectl`` does."""

from __future__ import annotations

import base64
import ipaddress
import os
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from entrepot.errors import InvalidArgument

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy that tunnels with ``CONNECT``.

    Attributes:
        host, port: of the proxy.
        said_by: where it is configured, for messages.
        authorization: value of ``Proxy-Authorization``; None: not sent.
    """

    host: str
    port: int
    said_by: str
    authorization: str | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """Headers for the proxy itself."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}

    def __str__(self) -> str:
        return f"the proxy {self.host}:{self.port} ({self.said_by})"


def parse(url: str, said_by: str) -> Proxy:
    """Parse a proxy URL.

    Args:
        url: such as ``http://user:password@proxy:3128``.
        said_by: where it is configured, for messages.

    Raises:
        InvalidArgument: it is not a URL, or of an unsupported kind.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidArgument(f"{said_by}: invalid proxy URL: {error}") from error
    if parts.scheme != "http" or not host:
        # The URL may contain a password: show only its scheme.
        raise InvalidArgument(
            f"{said_by}: the proxy must be a URL that begins with http:// (TLS to the API server is tunneled with "
            f"CONNECT), not {parts.scheme or 'none'!r}; neither SOCKS nor TLS to the proxy itself is supported"
        )
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
    return Proxy(host, port or 80, said_by, authorization)


def from_environment(server: str) -> Proxy | None:
    """The proxy for a server from ``HTTPS_PROXY`` (``HTTP_PROXY`` for ``http://``) and ``NO_PROXY``, read as Go does.

    Upper-case variables take precedence over lower-case ones. This machine itself is never reached through a proxy.

    Args:
        server: URL of the API server.

    Raises:
        InvalidArgument: the variable that applies cannot be used.
    """
    parts = urlsplit(server)
    variable = "HTTPS_PROXY" if parts.scheme == "https" else "HTTP_PROXY"
    name = next((candidate for candidate in (variable, variable.lower()) if os.environ.get(candidate)), None)
    host = parts.hostname or ""
    if name is None or _is_local(host):
        return None
    excepted = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    if _is_excepted(host, parts.port or _PORTS[parts.scheme], excepted):
        return None
    url = os.environ[name].strip()
    return parse(url if "://" in url else f"http://{url}", name)


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _is_excepted(host: str, port: int, excepted: str) -> bool:
    address = _address(host)
    for pattern in (entry.strip().lower() for entry in excepted.split(",")):
        if pattern == "*":
            return True
        if address is not None and "/" in pattern:
            try:
                network = ipaddress.ip_network(pattern, strict=False)
            except ValueError:
                continue  # neither a network nor this host's name
            if address in network:
                return True
            continue
        name, its_port = _host_and_port(pattern)
        if not name or its_port not in (None, port):
            continue
        if address is not None:
            if _address(name) == address:
                return True
        elif host == name or host.endswith(name if name.startswith(".") else f".{name}"):
            return True
    return False


def _host_and_port(entry: str) -> tuple[str, int | None]:
    """Parse an entry of NO_PROXY: ``*.name`` means ``.name``; an IPv6 address with a port is in brackets."""
    if _address(entry) is not None:
        return entry, None
    name, colon, port = entry.rpartition(":")
    if not colon or not port.isdecimal():
        name, port = entry, ""
    name = name.strip("[]")
    return name.removeprefix("*") if name.startswith("*.") else name, int(port) if port else None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
