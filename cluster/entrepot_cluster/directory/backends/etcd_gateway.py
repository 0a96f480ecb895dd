"""Requests to etcd's JSON gateway over HTTP: endpoints in turn, deadlines, authentication, errors."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import urllib3
from entrepot.errors import AccessDenied, DirectoryUnavailable, EntrepotError

_PART_BYTES = 1 << 18
_CONNECTIONS = 32  # kept; more are opened if needed
_MAX_RESPONSE_BYTES = 256 << 20
_MAX_LINE_BYTES = 64 << 20
# Codes of gRPC, as the gateway reports them.
_RESOURCE_EXHAUSTED = 8
_PERMISSION_DENIED = 7
_UNAUTHENTICATED = 16
_NOT_FOUND = 5
_INVALID_ARGUMENT = 3


class NotFound(Exception):
    """etcd does not have what a request names, such as a lease."""


@dataclass(frozen=True)
class EtcdAccess:
    """How etcd is reached.

    Attributes:
        endpoints: host and port of each member.
        tls: encrypts connections; None: HTTP.
        user, password: empty: without authentication.
    """

    endpoints: Sequence[tuple[str, int]]
    tls: ssl.SSLContext | None = None
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        return "etcd at " + ",".join(f"{host}:{port}" for host, port in self.endpoints)


class EtcdGateway:
    """The JSON gateway of an etcd cluster. For any number of threads.

    Args:
        access: how it is reached.
        timeout: seconds for one request, all endpoints together.
    """

    def __init__(self, access: EtcdAccess, timeout: float) -> None:
        self._access = access
        self._timeout = timeout
        self._lock = threading.Lock()
        self._first = 0  # index of the endpoint that responded last; guarded by _lock
        self._token = ""  # guarded by _lock
        self._pools: list[urllib3.HTTPConnectionPool] = [
            urllib3.HTTPSConnectionPool(host, port, maxsize=_CONNECTIONS, ssl_context=access.tls)
            if access.tls is not None
            else urllib3.HTTPConnectionPool(host, port, maxsize=_CONNECTIONS)
            for host, port in access.endpoints
        ]

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return the response.

        Args:
            path: after ``/v3/``.
            body: the request, in the gateway's form: bytes in Base64, 64-bit numbers as text.

        Raises:
            DirectoryUnavailable: no endpoint answered in time, or etcd cannot do it now.
            AccessDenied: user, password or the user's rights do not allow it.
            NotFound: etcd lacks what the request names.
        """
        return self._authorized(path, body)[0]

    def dated(self, path: str, body: dict[str, Any]) -> float:
        """Send a request; return when it was answered by the clock of the etcd member, in whole seconds since 1970."""
        return self._authorized(path, body)[1]

    def stream(self, path: str, body: dict[str, Any]) -> Stream:
        """Send a request whose response is a stream, and return it once the response has begun.

        Raises:
            DirectoryUnavailable: no endpoint answered in time.
            AccessDenied: user, password or the user's rights do not allow it.
        """
        response = self._open(path, json.dumps(body).encode())
        if response.status != 200:
            content = response.read(_PART_BYTES)
            response.close()
            raise self._refusal(path, response.status, content)
        return Stream(response, self._access)

    def close(self) -> None:
        """Close the connections."""
        for pool in self._pools:
            pool.close()

    def _authorized(self, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
        encoded = json.dumps(body).encode()
        end = time.monotonic() + self._timeout
        used = self._token_for(end)
        status, content, date = self._send(path, encoded, end, used)
        if status != 200 and self._access.user and _error(content)[0] == _UNAUTHENTICATED:
            # etcd forgets tokens after five minutes, and at a restart.
            with self._lock:
                if self._token == used:
                    self._token = ""
            status, content, date = self._send(path, encoded, end, self._token_for(end))
        if status != 200:
            raise self._refusal(path, status, content)
        return self._decoded(path, content), date

    def _token_for(self, end: float) -> str:
        if not self._access.user:
            return ""
        with self._lock:
            token = self._token
        if token:
            return token
        body = json.dumps({"name": self._access.user, "password": self._access.password}).encode()
        status, content, _ = self._send("auth/authenticate", body, end, "")
        if status != 200:
            code, message = _error(content)
            if code in (_INVALID_ARGUMENT, _PERMISSION_DENIED, _UNAUTHENTICATED):
                raise AccessDenied(f"{self._access} refuses user {self._access.user!r}: {message}")
            raise self._refusal("auth/authenticate", status, content)
        token = str(self._decoded("auth/authenticate", content).get("token", ""))
        with self._lock:
            self._token = token
        return token

    def _decoded(self, path: str, content: bytes) -> dict[str, Any]:
        try:
            decoded = json.loads(content)
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict):
            raise DirectoryUnavailable(
                f"{self._access} answers /v3/{path} with {content[:100]!r}: is this etcd 3.4 or newer?"
            )
        return decoded

    def _refusal(self, path: str, status: int, content: bytes) -> Exception:
        code, message = _error(content)
        if code == _NOT_FOUND:
            return NotFound(message)
        if code in (_PERMISSION_DENIED, _UNAUTHENTICATED) or (code == _INVALID_ARGUMENT and "user name" in message):
            return AccessDenied(f"{self._access} refuses /v3/{path}: {message}; check the user and its role")
        if code == _RESOURCE_EXHAUSTED and "space" in message:
            return DirectoryUnavailable(
                f"{self._access} is full: {message}; compact and defragment it, or raise --quota-backend-bytes, and "
                "then run `etcdctl alarm disarm`"
            )
        return DirectoryUnavailable(f"{self._access} answers /v3/{path} with status {status}: {message}")

    def _send(self, path: str, body: bytes, end: float, token: str) -> tuple[int, bytes, float]:
        """Status, content and date of the response of the first endpoint that gives one."""
        failures = []
        for index, seconds, is_last in self._endpoints(end):
            if seconds <= 0:
                break
            try:
                status, content, date = self._attempt(self._pools[index], path, body, seconds, token)
            except (OSError, urllib3.exceptions.HTTPError) as error:
                failures.append(f"{self._name(index)}: {_reason(error)}")
                continue
            if status == 503 and not is_last:  # this member has no leader, say
                failures.append(f"{self._name(index)}: {_error(content)[1]}")
                continue
            with self._lock:
                self._first = index
            return status, content, date
        raise self._unreachable(failures)

    def _attempt(
        self, pool: urllib3.HTTPConnectionPool, path: str, body: bytes, seconds: float, token: str
    ) -> tuple[int, bytes, float]:
        end = time.monotonic() + seconds
        response = pool.urlopen(
            "POST",
            f"/v3/{path}",
            body=body,
            headers=_headers(token),
            timeout=urllib3.Timeout(total=seconds),
            retries=False,
            preload_content=False,
        )
        parts = []
        size = 0
        try:
            while part := response.read(_PART_BYTES):
                parts.append(part)
                size += len(part)
                if time.monotonic() > end or size > _MAX_RESPONSE_BYTES:
                    raise urllib3.exceptions.ReadTimeoutError(pool, path, "the response is too long or too slow")
        except BaseException:
            response.close()  # the rest of it must not be taken for the next response
            raise
        response.release_conn()
        date = response.headers.get("Date")
        return response.status, b"".join(parts), parsedate_to_datetime(date).timestamp() if date else time.time()

    def _open(self, path: str, body: bytes) -> urllib3.BaseHTTPResponse:
        end = time.monotonic() + self._timeout
        headers = _headers(self._token_for(end)) | {"Grpc-Metadata-hasleader": "true"}  # ends without a leader
        failures = []
        for index, share, _ in self._endpoints(end):
            seconds = max(0.001, share)
            try:
                return self._pools[index].urlopen(
                    "POST",
                    f"/v3/{path}",
                    body=body,
                    headers=headers,
                    timeout=urllib3.Timeout(connect=seconds, read=seconds),
                    retries=False,
                    preload_content=False,
                )
            except (OSError, urllib3.exceptions.HTTPError) as error:
                failures.append(f"{self._name(index)}: {_reason(error)}")
        raise self._unreachable(failures)

    def _endpoints(self, end: float) -> Iterator[tuple[int, float, bool]]:
        """The endpoints in turn, the one that answered last first.

        Yields:
            its number, its share of the seconds that are left until then, and whether no other one follows.
        """
        with self._lock:
            first = self._first
        count = len(self._pools)
        for step in range(count):
            yield (first + step) % count, (end - time.monotonic()) / (count - step), step + 1 == count

    def _unreachable(self, failures: list[str]) -> EntrepotError:
        why = "; ".join(failures) or "no time was left"
        return DirectoryUnavailable(
            f"the directory cannot be reached: {self._access} did not answer within {self._timeout:g} s ({why})"
        )

    def _name(self, index: int) -> str:
        host, port = self._access.endpoints[index]
        return f"{host}:{port}"


class Stream:
    """A response that goes on until it is closed: its lines, decoded. ``close`` may be called by another thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse, access: EtcdAccess) -> None:
        self._response = response
        self._access = access

    def lines(self) -> Iterator[dict[str, Any]]:
        """The lines; raises DirectoryUnavailable when the stream breaks off, and ends after ``close``."""
        rest = b""
        socket = getattr(getattr(self._response, "connection", None), "sock", None)
        if socket is not None:
            socket.settimeout(None)
        try:
            for part in self._response.stream(_PART_BYTES):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    yield json.loads(line)
                if len(rest) > _MAX_LINE_BYTES:
                    raise DirectoryUnavailable(f"{self._access} sends a line of more than {_MAX_LINE_BYTES} bytes")
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
            raise DirectoryUnavailable(f"{self._access} broke off a stream: {_reason(error)}") from error
        finally:
            self._response.close()

    def close(self) -> None:
        """End it; a thread in :meth:`lines` comes to an end at once."""
        with suppress(OSError, ValueError, RuntimeError):
            self._response.shutdown()


def base64_text(raw: bytes) -> str:
    """Bytes as the gateway wants them."""
    return base64.b64encode(raw).decode()


def from_base64(text: str) -> bytes:
    """Bytes as the gateway sends them; it leaves empty ones out."""
    return base64.b64decode(text)


def _headers(token: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = token
    return headers


def _error(content: bytes) -> tuple[int, str]:
    """Code of gRPC, and message, of an error response; 0 if it has none."""
    try:
        fields = json.loads(content)
        return int(fields.get("code", 0)), str(fields.get("message") or fields.get("error"))
    except (ValueError, AttributeError, TypeError):
        return 0, repr(content[:200])


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "connection refused or host unknown" if error.__cause__ is None else str(error.__cause__)
    if isinstance(error, (urllib3.exceptions.TimeoutError, TimeoutError)):
        return "no response in time"
    return f"{type(error).__name__}: {error}"
