"""Who may talk to a gateway: mutual TLS, a shared token, or only this machine's processes."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import socket
import ssl
import stat
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from entrepot.errors import AccessDenied, InvalidArgument, StoreUnavailable, Timeout

MIN_TOKEN_BYTES = 16
MAX_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files of a gateway's identity, in PEM format.

    They are read for each new connection, so that renewed certificates take effect without a restart.

    Attributes:
        certificate: its certificate, and those between it and the CA.
        key: the certificate's private key.
        ca: certificates of the CAs that the certificates of peers must come from.
    """

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True, slots=True)
class TransportSecurity:
    """How a gateway and its peers prove who they are.

    With ``tls``, each end has a certificate of the cluster's CA, and what they send is encrypted. With ``token_file``,
    each end proves that it knows the token; without TLS, what follows is neither encrypted nor protected from those who
    can change packets. With neither, only loopback addresses are allowed, unless ``insecure`` is True.

    Attributes:
        tls: default: none.
        token_file: holds the token, at least 16 bytes; white space around it does not count. It is read for each new
            connection, and refused if users outside its group can read or write it, as is a key. Default: none.
        insecure: allow other addresses than loopback without TLS and token. Default: False.
    """

    tls: TlsFiles | None = None
    token_file: Path | None = None
    insecure: bool = False
    _contexts: _TlsContexts = field(default_factory=lambda: _TlsContexts(), compare=False, repr=False)

    def check_address(self, host: str) -> None:
        """Check that connections to or from this address are protected as required.

        Args:
            host: a numeric address, IPv4 or IPv6.

        Raises:
            InvalidArgument: it is not loopback, and there is neither TLS nor a token.
        """
        if self.tls or self.token_file or self.insecure or ipaddress.ip_address(host.partition("%")[0]).is_loopback:
            return
        raise InvalidArgument(
            f"the gateway's address {host} can be reached from other hosts, and neither TLS nor a token is configured: "
            "configure one of them, use a loopback address, or allow it (--insecure, insecure=True)"
        )

    def check_files(self) -> None:
        """Check that the files can be used now, so that a mistake is seen before the first connection.

        Raises:
            AccessDenied: one of them cannot be read, or does not hold what it should.
        """
        self.token()
        if self.tls is not None:
            for server in (False, True):
                self._contexts.context(self.tls, server=server)

    def token(self) -> bytes | None:
        """The token as it is in its file now; None: no token is configured.

        Raises:
            AccessDenied: the file cannot be read, is open to other users, or holds no token.
        """
        if self.token_file is None:
            return None
        try:
            with self.token_file.open("rb") as file:
                check_private(os.fstat(file.fileno()), f"the cluster's token in {self.token_file}")
                token = file.read(MAX_TOKEN_BYTES + 1).strip()
        except OSError as error:
            raise AccessDenied(f"the token of the cluster cannot be read: {error}") from error
        if not MIN_TOKEN_BYTES <= len(token) <= MAX_TOKEN_BYTES:
            raise AccessDenied(
                f"the cluster's token in {self.token_file} has {len(token)} bytes: it must have {MIN_TOKEN_BYTES} to "
                f"{MAX_TOKEN_BYTES}"
            )
        return token

    def wrap(self, connection: socket.socket, peer: str, *, server: bool, seconds: float) -> socket.socket:
        """Start TLS on a connection if it is configured.

        Args:
            connection: closed if this fails.
            peer: how errors call the other end.
            server: which end this is.
            seconds: how long to wait for the peer.

        Raises:
            AccessDenied: one end refuses the other's certificate; the message says which.
            Timeout: the peer does not answer.
            StoreUnavailable: the connection has ended.
        """
        if self.tls is None:
            return connection
        try:
            context = self._contexts.context(self.tls, server=server)
            connection.settimeout(seconds)
            wrapped = context.wrap_socket(connection, server_side=server, do_handshake_on_connect=False)
        except OSError:
            connection.close()
            raise
        try:
            wrapped.do_handshake()
        except OSError as error:
            close_after_reading(wrapped)
            if isinstance(error, TimeoutError):
                raise Timeout(f"{peer} did not finish the TLS handshake in {seconds:g} s") from error
            raise tls_refusal(error, peer) from error
        return wrapped


class _TlsContexts:
    """Contexts by end, made again when one of the files has changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[bool, tuple[tuple[object, ...], ssl.SSLContext]] = {}  # guarded by _lock

    def context(self, files: TlsFiles, *, server: bool) -> ssl.SSLContext:
        with self._lock:
            try:
                stamp = tuple(_stamp(path) for path in (files.certificate, files.key, files.ca))
                made = self._made.get(server)
                if made is not None and made[0] == stamp:
                    return made[1]
                check_private(files.key.stat(), f"this gateway's private key {files.key}")
                context = _context(files, server=server)
            except (OSError, ValueError) as error:  # an SSLError is an OSError
                raise AccessDenied(
                    f"this gateway's certificate {files.certificate}, key {files.key} or CA {files.ca} cannot be "
                    f"used: {error}"
                ) from error
            self._made[server] = (stamp, context)
            return context


def check_private(status: os.stat_result, what: str) -> None:
    """Refuse a file with a secret that any user of this machine can read or replace.

    Its group may read it: that is how Kubernetes gives Secrets to containers that do not run as root.

    Raises:
        AccessDenied: it is open to others.
    """
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o027:
        raise AccessDenied(
            f"{what} is open to other users (mode {stat.S_IMODE(status.st_mode):04o}), so it is no secret: change it, "
            "and then its mode (chmod 600; its group may read it, nobody else)"
        )


def _stamp(path: Path) -> tuple[int, int, int, int]:
    status = path.stat()
    return (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)


def _context(files: TlsFiles, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # gateways are known by their instance, which the handshake checks
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.ca)
    return context


def tls_refusal(error: OSError, peer: str) -> AccessDenied | StoreUnavailable:
    """What a failure of TLS means: with TLS 1.3, a client learns only from its first read that it was refused."""
    reason = getattr(error, "reason", None) or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return AccessDenied(f"this gateway refused the certificate of {peer}: {error.verify_message}")
    if isinstance(error, ssl.SSLError) and "ALERT" in reason.upper():
        return AccessDenied(f"{peer} refused this gateway's certificate: {reason}")
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return AccessDenied(f"{peer} and this gateway cannot agree on TLS: {reason}; both need it, with the same CA")
    return StoreUnavailable(f"{peer} ended the connection during the TLS handshake: {reason}")


def close_after_reading(connection: socket.socket, seconds: float = 1.0) -> None:
    """Close a connection so that its peer gets what was sent last, even if it is sending something itself.

    The kernel resets a connection that is closed with unread data, and the peer might never see the reason.
    """
    end = time.monotonic() + seconds
    try:
        connection.settimeout(seconds)
        socket.socket.shutdown(connection, socket.SHUT_WR)
        while time.monotonic() < end and socket.socket.recv(
            connection, 4096
        ):  # of a TLS connection: what is on the wire
            pass
    except OSError:
        pass  # the peer has ended it first
    finally:
        connection.close()


def proof(token: bytes, label: bytes, parts: tuple[bytes, ...]) -> bytes:
    """What shows that its sender knows the token: HMAC-SHA256 over the parts of the handshake.

    Args:
        token: the key.
        label: who sends it, so that it cannot be sent back.
        parts: what both ends know; each is preceded by its length.
    """
    message = b"".join(len(part).to_bytes(4, "little") + part for part in (label, *parts))
    return hmac.new(token, message, hashlib.sha256).digest()


def same(first: bytes, second: bytes) -> bool:
    """Compare in a time that does not depend on the content."""
    return hmac.compare_digest(first, second)
