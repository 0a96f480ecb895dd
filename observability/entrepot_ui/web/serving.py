"""Runs the page's server until the process is told to end."""

from __future__ import annotations

import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from entrepot.errors import AccessDenied, InvalidArgument

from entrepot_ui.watch.policy_log import PolicyLog
from entrepot_ui.watch.watcher import StoreWatcher
from entrepot_ui.web.app import Page, create_app
from entrepot_ui.web.cluster_hosts import ClusterHosts
from entrepot_ui.web.connections import MAX_ANSWERING, ConnectionLimits
from entrepot_ui.web.security import LOOPBACK_NAMES, Credentials

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_TOKEN = 16  # characters


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How the page is served.

    Attributes:
        address: of the store.
        host, port: where to listen; port 0: any that is free.
        token: the secret.
        allowed_hosts: further names by which the server is reached.
        cluster: URL of the cluster's directory; None: no cluster.
        interval: seconds between two looks at the store.
        events: directory of the failover policies' event logs.
    """

    address: str
    host: str
    port: int
    token: str
    allowed_hosts: tuple[str, ...]
    cluster: str | None
    interval: float
    events: Path


def new_token() -> str:
    """A random secret."""
    return secrets.token_urlsafe(32)


def read_token(path: Path) -> str:
    """Read the secret from a file.

    Raises:
        InvalidArgument: there is no such file, or it holds no usable secret.
        AccessDenied: others may read it.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise AccessDenied(f"{path} holds the token, but others may read it: chmod 600 {path}")
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"--token-file {path}: {error}") from error
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArgument(f"--token-file {path} must hold {MIN_TOKEN} or more printable characters without spaces")
    return token


def serve(settings: ServerSettings, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; ``announce`` gets the link once the server listens.

    Raises:
        InvalidArgument: it is not possible to listen there.
    """
    listener = _listen(settings.host, settings.port)
    port = listener.getsockname()[1]
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    credentials = Credentials(settings.token, port)
    policy_log = PolicyLog(settings.events)
    watcher = StoreWatcher(settings.address, settings.interval, list_share=0.2, policy_log=policy_log)
    page = Page(settings.address, watcher, policy_log, ClusterHosts(settings.cluster), credentials)
    app = create_app(page, LOOPBACK_NAMES | {shown.lower(), *settings.allowed_hosts})
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        http=ConnectionLimits().protocol,  # type: ignore[arg-type]  # called as a class would be
        limit_concurrency=MAX_ANSWERING,
    )
    server = _Server(config)
    announce(f"http://{shown}:{port}/#token={settings.token}")  # the socket listens: who connects now will be served
    try:
        server.run(sockets=[listener])
    finally:
        page.actions.close()
        page.hosts.close()
        watcher.close()


class _Server(uvicorn.Server):
    """Ends with exit code 0 after a signal, which uvicorn's own raises once more."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM while the server runs."""
        former = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InvalidArgument(f"--listen {host}:{port}: cannot listen there: {error}") from error
    return listener
