"""Addresses of gateways, ``host:port``, with an IPv6 address in brackets."""

from __future__ import annotations

import socket

from entrepot.errors import InvalidArgument, StoreUnavailable


def split_address(address: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        InvalidArgument: it is not ``host:port``.
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidArgument(f"the address of a gateway is host:port, such as 10.0.0.7:7421, not {address!r}")
    return host, int(port)


def resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Return the numeric addresses of a host, with their families, in the order of preference.

    Raises:
        StoreUnavailable: it is not known.
    """
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise StoreUnavailable(f"the host {host!r} of a gateway is not known: {error}") from error
    return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in resolved]
