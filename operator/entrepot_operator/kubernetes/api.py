"""Requests to the API server over the official client's connections: read, watch, write. For one thread."""

from __future__ import annotations

import json
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from entrepot.errors import EntrepotError

from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials
from entrepot_operator.kubernetes.errors import ClusterUnavailable, ListExpired, ResourceNotFound, refused
from entrepot_operator.kubernetes.official import urllib3

REQUEST_SECONDS = 15.0  # for one attempt
PATIENCE_SECONDS = 30.0  # for all attempts of a request together
WATCH_SECONDS = 300  # after which the server ends a watch; the next one resumes there
SILENCE_SECONDS = 100.0  # the server sends something every minute; a connection silent for longer is dead
PAGE = 500
LIST_TRIES = 3
MAX_ANSWER_BYTES = 256 << 20
T = TypeVar("T")
Body = Mapping[str, Any] | Sequence[Mapping[str, Any]]
_LATER = frozenset({429, 500, 502, 503, 504})
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_PART_BYTES = 1 << 16  # of a watch, read at a time


class Api:
    """The API server of one cluster.

    Args:
        access: its address and credentials.
        patience: seconds for which a request with a transient error is retried; 0: never.
        request_seconds: for one attempt.
        note_date: called with each response's date, and the monotonic times of its request and of itself.
        clock: monotonic seconds, from which the server's time between responses is computed.

    Raises:
        InvalidArgument: the proxy cannot be used.
    """

    def __init__(
        self,
        access: ClusterCredentials,
        *,
        patience: float = PATIENCE_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
        note_date: Callable[[datetime, float, float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._patience = patience
        self._request_seconds = request_seconds
        self._note_date = note_date
        self._clock = clock
        self._pool = access.connect()
        self._watched: urllib3.BaseHTTPResponse | None = None
        self._aborted = False  # written by another thread, before it reads _watched
        self._server_time: tuple[datetime, float] | None = None

    @property
    def access(self) -> ClusterCredentials:
        """Address and credentials of the server."""
        return self._access

    def now(self) -> datetime:
        """Current time by the server's clock if known, else by this machine's."""
        if self._server_time is None:
            return datetime.now(timezone.utc)
        server_time, at = self._server_time
        return datetime.fromtimestamp(server_time.timestamp() + self._clock() - at, timezone.utc)

    def get(self, path: str) -> dict[str, Any]:
        """Read one resource.

        Args:
            path: such as ``/api/v1/nodes/a``.

        Raises:
            ResourceNotFound: it does not exist.
            AccessDenied: the credentials lack permission.
            ClusterRefused, ClusterUnavailable: any other failure.
        """
        return self._ask("GET", path)

    def read_all(self, path: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        """Read all resources of a collection, page by page.

        Args:
            path: such as ``/api/v1/nodes``.
            labels, fields: selectors; empty: all.

        Raises:
            As :meth:`get`.
        """
        return self.list_into(list, path, labels=labels, fields=fields)

    def list_into(
        self, take: Callable[[Iterator[dict[str, Any]]], T], path: str, *, labels: str = "", fields: str = ""
    ) -> T:
        """Read a collection with a function that need not hold all of it; returns the function's result.

        Args:
            take: consumes the resources. It is called again from the start if it took so long that the list expired.
            path, labels, fields: as for :meth:`read_all`.

        Raises:
            As :meth:`get`.
        """
        tries = LIST_TRIES
        while True:
            pages = self.iter_pages(path, labels=labels, fields=fields)
            try:
                return take(item for page in pages for item in page["items"])
            except ListExpired:  # the list's version was compacted away meanwhile: start again
                tries -= 1
                if not tries:
                    raise

    def iter_pages(self, path: str, *, labels: str = "", fields: str = "") -> Iterator[dict[str, Any]]:
        """Read a collection page by page, without holding all of it.

        Args:
            path, labels, fields: as for :meth:`read_all`.

        Yields:
            The pages: ``items``, and ``metadata`` with the ``resourceVersion`` of the whole list.

        Raises:
            ListExpired: reading took too long; start again. Otherwise as :meth:`get`.
        """
        query: dict[str, Any] = {"limit": PAGE, "labelSelector": labels, "fieldSelector": fields}
        while True:
            page = self._ask("GET", path, {key: value for key, value in query.items() if value})
            metadata = page.get("metadata") or {}
            yield {"items": page.get("items") or [], "metadata": metadata}
            query["continue"] = metadata.get("continue")
            if not query["continue"]:
                return

    def watch(
        self, path: str, version: str, *, labels: str = "", fields: str = "", seconds: int = WATCH_SECONDS
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield changes of a collection as they happen, until the server ends the watch. Never retries.

        Args:
            path, labels, fields: as for :meth:`read_all`.
            version: the ``resourceVersion`` to start from.
            seconds: after which the server ends the watch.

        Yields:
            ``ADDED``, ``MODIFIED`` or ``DELETED`` with the resource; ``BOOKMARK`` with a resource that has only a
                ``resourceVersion``, the first one as soon as the watch has started.

        Raises:
            ListExpired: the server no longer has that version: read the collection again.
            ClusterUnavailable: the connection broke, or was silent for too long.
            AccessDenied, ClusterRefused, ResourceNotFound: as :meth:`get`.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": seconds}
        query |= {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        answer: urllib3.BaseHTTPResponse | None = None
        try:
            if self._aborted:
                raise ClusterUnavailable(f"WATCH {path}: aborted before it started")
            timeout = urllib3.Timeout(connect=self._request_seconds, read=SILENCE_SECONDS)
            self._watched = answer = self._send("GET", f"{quote(path)}?{urlencode(query)}", timeout)
            if self._aborted:
                raise ClusterUnavailable(f"WATCH {path}: aborted")
            if answer.status != 200:
                raise _failure("WATCH", path, answer.status, _read(answer)[1])
            yield "BOOKMARK", {"metadata": {"resourceVersion": version}}
            for line in _lines(answer):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _failure("WATCH", path, int(event["object"].get("code") or 500), event["object"])
                yield event["type"], event["object"]
        except EntrepotError:
            raise
        except (OSError, urllib3.exceptions.HTTPError, ValueError, KeyError) as error:
            raise ClusterUnavailable(
                f"WATCH {path}: lost the connection to {self._access.server}{self._way}: {error}"
            ) from error
        finally:
            self._watched = None
            if answer is not None:
                answer.close()

    def abort(self) -> None:
        """Abort a watch from another thread, so that its reader stops. No watch can start afterwards."""
        self._aborted = True
        self.cut_watch()

    def cut_watch(self) -> None:
        """End a watch from another thread, as if its connection had broken; its reader can start another."""
        if (answer := self._watched) is not None:
            with suppress(OSError, ValueError, RuntimeError):  # it has ended by itself
                answer.shutdown()

    def create(self, path: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create a resource.

        Args:
            path: of the collection.
            manifest: of the resource.

        Raises:
            As :meth:`get`; ``ClusterRefused`` with status 409 if it exists already, which, after a lost response, may
                be due to this very request.
        """
        return self._ask("POST", path, {}, manifest)

    def replace(self, path: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a resource, if it is unchanged since it was read.

        Args:
            path: of the resource.
            manifest: with the ``resourceVersion`` that was read.

        Raises:
            As :meth:`get`; ``ClusterRefused`` with status 409 if it has changed.
        """
        return self._ask("PUT", path, {}, manifest)

    def json_patch(self, path: str, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Change a resource atomically with a JSON patch (RFC 6902).

        Args:
            path: of the resource.
            steps: the patch. Its ``test`` operations state the preconditions.

        Raises:
            As :meth:`get`; ``ClusterRefused`` with status 422 if a test failed or the result is invalid.
        """
        return self._ask("PATCH", path, {}, steps, "application/json-patch+json")

    def apply(self, path: str, manifest: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Server-side apply: the manager sets, and comes to own, the fields in the manifest.

        Args:
            path: of the resource, or of its status.
            manifest: with ``apiVersion``, ``kind`` and the name.
            manager: the field manager. Fields owned by others are taken over.

        Raises:
            As :meth:`get`.
        """
        query = {"fieldManager": manager, "force": "true"}
        return self._ask("PATCH", path, query, manifest, "application/apply-patch+yaml")

    def delete(self, path: str, *, version: str | None = None) -> bool:
        """Delete one resource and return whether it existed.

        Args:
            path: of the resource.
            version: delete only this ``resourceVersion``.

        Raises:
            As :meth:`get`; ``ClusterRefused`` with status 409 if it has another version.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if version is not None:
            options["preconditions"] = {"resourceVersion": version}
        try:
            self._ask("DELETE", path, {}, options)
        except ResourceNotFound:
            return False
        return True

    def close(self) -> None:
        """Close the connections; the next request opens a new one."""
        self._pool.clear()

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Body | None = None,
        kind: str = "application/json",
    ) -> dict[str, Any]:
        """Send one request, with retries on transient errors: repeating any of these requests is safe."""
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        end = time.monotonic() + self._patience
        pause = _FIRST_PAUSE_SECONDS
        while True:
            asked_to_wait = 0.0
            try:
                answer = self._send(method, target, urllib3.Timeout(self._request_seconds), body, kind)
                is_json, content = _read(answer)
                if not is_json and 200 <= answer.status < 300:
                    raise urllib3.exceptions.HTTPError(f"the response is not JSON: {content[:200]!r}")
            except (OSError, urllib3.exceptions.HTTPError) as error:
                if error.args and isinstance(error.args[0], ssl.SSLCertVerificationError):
                    raise ClusterUnavailable(
                        f"the certificate of the API server {self._access.server} is not trusted: {error}; set its "
                        "certificate authority in the kubeconfig"
                    ) from error
                text = f"{method} {path}: the API server {self._access.server} does not respond{self._way}: {error}"
                failure: EntrepotError = ClusterUnavailable(text)
                failure.__cause__ = error
            else:
                if 200 <= answer.status < 300:
                    return content if isinstance(content, dict) else {}
                failure = _failure(method, path, answer.status, content)
                if answer.status not in _LATER:
                    raise failure
                asked_to_wait = _seconds(answer.headers.get("Retry-After"))
            wait = max(asked_to_wait, pause * random.uniform(0.5, 1.0))
            if time.monotonic() + wait > end:
                raise failure
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _send(
        self, method: str, target: str, timeout: urllib3.Timeout, body: Body | None = None, kind: str = ""
    ) -> urllib3.BaseHTTPResponse:
        """Send one request; returns the response, whose body is still to be read.

        urllib3 does not retry: it would count attempts, and obey any Retry-After, where a leader needs a limit in time.
        """
        headers = self._access.headers()
        headers.update({"Accept": "application/json", "User-Agent": "entrepot"})
        data = None
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = kind
        sent_at = time.monotonic()
        answer = self._pool.urlopen(
            method,
            self._access.server + target,
            body=data,
            headers=headers,
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=False,
        )
        self._note_time(answer.headers.get("Date"), sent_at)
        return answer

    @property
    def _way(self) -> str:
        """Describe the proxy, for messages; without its password."""
        proxy = getattr(self._pool, "proxy", None)
        return f" through the proxy {proxy.host}:{proxy.port}" if proxy is not None else ""

    def _note_time(self, text: str | None, sent_at: float) -> None:
        if text is None:
            return
        try:
            server_time = parsedate_to_datetime(text)
        except ValueError:
            return  # a proxy's malformed date; this machine's clock will do
        if self._note_date is not None:
            self._note_date(server_time, sent_at, time.monotonic())
        # A Date header has whole seconds: one within the same second is ignored, or our time would go back.
        if self._server_time is None or not 0 <= (self.now() - server_time).total_seconds() < 1:
            self._server_time = (server_time, self._clock())


def _read(answer: urllib3.BaseHTTPResponse) -> tuple[bool, Any]:
    """Whether a response body is JSON, and the body."""
    text = answer.read(MAX_ANSWER_BYTES + 1)
    if len(text) > MAX_ANSWER_BYTES:
        answer.close()
        raise urllib3.exceptions.HTTPError(f"the response exceeds {MAX_ANSWER_BYTES} bytes")
    try:
        return True, json.loads(text) if text else {}
    except ValueError:
        return False, text.decode("utf-8", "replace")


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The lines of a response as they arrive."""
    rest = b""
    while part := answer.read1(_PART_BYTES):
        *lines, rest = (rest + part).split(b"\n")
        yield from lines
        if len(rest) > MAX_ANSWER_BYTES:
            raise urllib3.exceptions.HTTPError(f"an event exceeds {MAX_ANSWER_BYTES} bytes")
    if rest:
        yield rest


def _failure(method: str, path: str, status: int, content: Any) -> EntrepotError:
    """The error for a failed response."""
    failure = refused(method, path, status, content)
    return ClusterUnavailable(str(failure)) if status in _LATER else failure


def _seconds(text: str | None) -> float:
    """Parse ``Retry-After``; the API server never sends dates."""
    return float(text) if text is not None and text.isdecimal() else 0.0
