"""The webhook's server: HTTPS on an event loop in a thread of its own, decisions in a small thread pool."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web
from entrepot.errors import EntrepotError, InvalidArgument

from entrepot_operator.placement.warnings import PlacementWarning
from entrepot_operator.webhook import admission_review
from entrepot_operator.webhook.admission_review import Review
from entrepot_operator.webhook.certificates import KeyPair
from entrepot_operator.webhook.handler import Decision
from entrepot_operator.webhook.metrics import Counters, Result
from entrepot_operator.webhook.settings import PATH, PATH_WITHOUT_MOUNTS, Settings

log = logging.getLogger(__name__)

_THREADS = 2
_MAX_CONCURRENT_REQUESTS = 32  # requests whose bodies are in memory
_START_SECONDS = 10.0
_STOP_SECONDS = 2.0

Decide = Callable[[Review, bool], Decision]
ReportWarnings = Callable[[Review, list[PlacementWarning]], None]


class Server:
    """Listens on construction; handshakes fail until a certificate is installed.

    Args:
        settings: address, deadline and so on.
        decide: decides about a pod, given whether mounts are allowed. Called in threads.
        counters: counts each review.
        ready: whether this server can do more than leave pods unchanged.
        report_warnings: receives the problems of each pod that is actually created (no dry run). Must not block.

    Raises:
        InvalidArgument: the address cannot be listened on.
    """

    def __init__(
        self,
        settings: Settings,
        decide: Decide,
        counters: Counters,
        ready: Callable[[], bool],
        report_warnings: ReportWarnings | None,
    ) -> None:
        self._settings = settings
        self._decide = decide
        self._counters = counters
        self._ready = ready
        self._report_warnings = report_warnings
        self._key_pair: KeyPair | None = None
        self._tls = _create_tls_context()
        self._pool = ThreadPoolExecutor(_THREADS, "entrepot-admission")
        self._loop = asyncio.new_event_loop()
        self._socket = _create_socket(settings.host, settings.port)
        self.port: int = self._socket.getsockname()[1]
        self._request_slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)
        self._started: threading.Event = threading.Event()
        self._thread = threading.Thread(target=self._run, name="entrepot-webhook", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_SECONDS):
            raise InvalidArgument(f"the webhook is not listening on port {self.port} after {_START_SECONDS:g} s")

    @property
    def has_certificate(self) -> bool:
        """Whether handshakes can succeed."""
        return self._key_pair is not None

    def install(self, key_pair: KeyPair) -> None:
        """Serve a certificate from the next connection on.

        Raises:
            InvalidArgument: it cannot be used; the previous one is still served.
        """
        if key_pair == self._key_pair:
            return
        _load_key_pair(_create_tls_context(), key_pair)
        done: threading.Event = threading.Event()

        def change() -> None:
            # In the loop's own thread, so that no handshake runs concurrently.
            _load_key_pair(self._tls, key_pair)
            done.set()

        self._loop.call_soon_threadsafe(change)
        if not done.wait(_START_SECONDS):
            raise InvalidArgument("the webhook's server is not responding")
        self._key_pair = key_pair

    def close(self) -> None:
        """Finish requests in progress, and stop."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        application = web.Application(client_max_size=admission_review.MAX_BODY_BYTES)
        application.router.add_post(PATH, self._with_mounts)
        application.router.add_post(PATH_WITHOUT_MOUNTS, self._without_mounts)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_STOP_SECONDS)
        try:
            self._loop.run_until_complete(runner.setup())
            site = web.SockSite(runner, self._socket, ssl_context=self._tls, backlog=128)
            self._loop.run_until_complete(site.start())
            self._loop.call_soon(self._started.set)
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(runner.cleanup())
            self._loop.close()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._ready():
            return web.Response(text="ok")
        return web.Response(status=503, text="object locations are not known yet")

    async def _with_mounts(self, request: web.Request) -> web.Response:
        return await self._mutate(request, True)

    async def _without_mounts(self, request: web.Request) -> web.Response:
        return await self._mutate(request, False)

    async def _mutate(self, request: web.Request, mounts: bool) -> web.Response:
        started = time.perf_counter()
        result: Result = "failed"
        try:
            if request.content_type != "application/json":
                result = "invalid"
                return web.Response(status=415, text=f"expected application/json, not {request.content_type!r}")
            try:
                response_body, result = await self._review(request, mounts, started)
            except InvalidArgument as error:
                result = "invalid"
                return web.Response(status=400, text=str(error))
            except web.HTTPRequestEntityTooLarge:
                result = "invalid"
                return web.Response(status=413, text=f"the request exceeds {admission_review.MAX_BODY_BYTES} bytes")
            except asyncio.TimeoutError:
                result = "late"
                return web.Response(status=503, text="timed out: request incomplete, or too many requests in progress")
            return web.Response(body=response_body, content_type="application/json")
        finally:
            self._counters.add(result, time.perf_counter() - started)

    async def _review(self, request: web.Request, mounts: bool, started: float) -> tuple[bytes, Result]:
        end = started + self._settings.deadline

        def remaining_seconds() -> float:
            return max(0.0, end - time.perf_counter())

        # Create a task and a timer only if waiting is necessary: usually there is a free slot, and the body has
        # arrived.
        if self._request_slots.locked():
            await asyncio.wait_for(self._request_slots.acquire(), remaining_seconds())
        else:
            await self._request_slots.acquire()
        try:
            body = await (
                request.read() if request.content.is_eof() else asyncio.wait_for(request.read(), remaining_seconds())
            )
            review = admission_review.parse_review(body)
            decision = await self._decide_in_time(review, mounts, remaining_seconds())
        finally:
            self._request_slots.release()
        warnings = [f"Entrepot: {warning.text}" for warning in decision.warnings]
        if self._report_warnings is not None and decision.warnings and not review.dry_run:
            self._report_warnings(review, decision.warnings)
        return admission_review.encode_response(review.uid, decision.patch, warnings), decision.result

    async def _decide_in_time(self, review: Review, mounts: bool, seconds: float) -> Decision:
        future = self._loop.run_in_executor(self._pool, self._decide, review, mounts)
        try:
            return await asyncio.wait_for(future, seconds)
        except asyncio.TimeoutError:
            text = f"no decision within {self._settings.deadline:g} s: the pod is left unchanged"
            return Decision("late", warnings=[PlacementWarning("late", text)])
        except EntrepotError as error:
            return Decision("failed", warnings=[PlacementWarning("failed", f"{error}: the pod is left unchanged")])
        except Exception as error:  # whatever is wrong here, the pod must be created
            log.exception("webhook failed; the pod is left unchanged")
            text = f"internal error in the webhook ({type(error).__name__}): the pod is left unchanged"
            return Decision("failed", warnings=[PlacementWarning("failed", text)])


def _create_tls_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load_key_pair(context: ssl.SSLContext, key_pair: KeyPair) -> None:
    # OpenSSL reads only files. This one is in memory and has no name, so that the key never reaches a disk.
    descriptor = os.memfd_create("entrepot-certificate", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(key_pair.certificate + b"\n" + key_pair.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the webhook's certificate cannot be used: {error}") from error
    finally:
        os.close(descriptor)


def _create_socket(host: str, port: int) -> socket.socket:
    try:
        if host:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, port), family=family)
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise InvalidArgument(f"the webhook cannot listen on {host or 'any address'}, port {port}: {error}") from error
