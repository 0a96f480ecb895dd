"""Who may talk to the page's server: checks of host, origin and token, before anything else sees a request.

The token is in the fragment of the link that ``entrepot ui`` prints, which browsers send to nobody. The page sends it
once, in a header, and gets a cookie for it. Whoever has neither sees only the page itself, which holds no data.

* Host: a name that this server is reached by, so that no site can lead its own name to it (DNS rebinding).
* Origin: if a browser names one, it is this server's own; so for ``Sec-Fetch-Site``.
* POST: besides the cookie, a header with a token that only pages of this origin can read (CSRF).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
CSRF_HEADER = "x-csrf-token"
MAX_BODY = 1 << 20
_OPEN_PATHS = ("/", "/favicon.ico")  # what anybody who reaches the server may see, and what is below /assets/
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Credentials:
    """The token, and what is derived from it.

    Args:
        token: the secret.
        port: of the server; browsers do not keep the cookies of two ports of a host apart.
    """

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self.cookie_name = f"entrepot-ui-{port}"
        self.cookie = self._derive("cookie")
        self.csrf = self._derive("csrf")

    def matches_token(self, text: str) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(text.encode(), self._token.encode())

    def matches_cookie(self, text: str) -> bool:
        """Whether this is the cookie."""
        return hmac.compare_digest(text.encode(), self.cookie.encode())

    def matches_csrf(self, text: str) -> bool:
        """Whether this is the token for requests that change something."""
        return hmac.compare_digest(text.encode(), self.csrf.encode())

    def _derive(self, purpose: str) -> str:
        return hmac.new(self._token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


class Guard:
    """Refuses what is not from this server's own page, and adds headers to each answer; an ASGI middleware.

    Args:
        app: what answers the rest.
        credentials: the token.
        names: host names by which this server is reached, without ports.
    """

    def __init__(self, app: ASGIApp, credentials: Credentials, names: Iterable[str]) -> None:
        self._app = app
        self._credentials = credentials
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")  # uvicorn refuses WebSockets itself

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
            return
        code, reason = refusal
        await JSONResponse({"error": reason}, code)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """The status and the reason with which a request is refused; None: it is not."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _name_of(hosts[0]) not in self._names:
            return 421, "this server is not reached by that host name; see --allow-host"
        origin = headers.get("origin")
        # https: where a proxy adds TLS.
        if origin is not None and origin.lower() not in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"):
            return 403, "the request comes from another origin"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "the request comes from another site"
        path, method = scope["path"], scope["method"]
        if path == "/api/login":
            return self._login_refusal(method, headers)
        if method in ("GET", "HEAD") and (path in _OPEN_PATHS or path.startswith("/assets/")):
            return None
        if not (self._has_cookie(headers) or self._has_token(headers)):
            return 401, "no valid token: open the link that entrepot ui printed"
        if method in ("GET", "HEAD"):
            return None
        return self._post_refusal(headers)

    def _login_refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        if method != "POST":
            return 405, "log in by POST"
        return None if self._has_token(headers) else (401, "this is not the token: open the link that was printed last")

    def _post_refusal(self, headers: Headers) -> tuple[int, str] | None:
        if not self._credentials.matches_csrf(headers.get(CSRF_HEADER, "")):
            return 403, f"a request that changes something needs the header {CSRF_HEADER}, from /api/session"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "the body must be application/json"
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MAX_BODY:
            return 413, f"the body must have a known length of at most {MAX_BODY} bytes"
        return None

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, text = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._credentials.matches_token(text.strip())

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        morsel = cookies.get(self._credentials.cookie_name)
        return morsel is not None and self._credentials.matches_cookie(morsel.value)


def _name_of(host: str) -> str:
    """The name in a Host header, in lower case, without the port."""
    name, separator, port = host.lower().rpartition(":")
    if separator and port.isdecimal() and (":" not in name or name.endswith("]")):
        return name
    return host.lower()


def parse_body(body: bytes) -> dict[str, object]:
    """Decode the JSON object of a request.

    Raises:
        ValueError: it is none.
    """
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("the body must be a JSON object")
    return value
