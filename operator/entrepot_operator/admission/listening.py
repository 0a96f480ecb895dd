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
from entrepot_io.placement.reasons import Reason

from entrepot_operator.admission import requests
from entrepot_operator.admission.authority import Pair
from entrepot_operator.admission.counting import Counters, Result
from entrepot_operator.admission.requests import Review
from entrepot_operator.admission.reviewing import Verdict
from entrepot_operator.admission.settings import PATH, PATH_WITHOUT_MOUNTS, Settings

log = logging.getLogger(__name__)

_THREADS = 2
_AT_ONCE = 32  # requests whose bodies are in memory
_START_SECONDS = 10.0
_STOP_SECONDS = 2.0

Decide = Callable[[Review, bool], Verdict]
Told = Callable[[Review, list[Reason]], None]


class Server:
    """Listens on construction; handshakes fail until a certificate is installed.

    Args:
        settings: address, deadline and so on.
        decide: decides about a pod, given whether mounts are allowed. Called in threads.
        counters: counts each review.
        ready: whether this server can do more than leave pods unchanged.
        told: receives the problems of each pod that is actually created (no dry run). Must not block.

    Raises:
        InvalidArgument: the address cannot be listened on.
    """

    def __init__(
        self, settings: Settings, decide: Decide, counters: Counters, ready: Callable[[], bool], told: Told | None
    ) -> None:
        self._settings = settings
        self._decide = decide
        self._counters = counters
        self._ready = ready
        self._told = told
        self._served: Pair | None = None
        self._tls = _context()
        self._pool = ThreadPoolExecutor(_THREADS, "entrepot-admission")
        self._loop = asyncio.new_event_loop()
        self._socket = _listen(settings.host, settings.port)
        self.port: int = self._socket.getsockname()[1]
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._begun: threading.Event = threading.Event()
        self._thread = threading.Thread(target=self._run, name="entrepot-webhook", daemon=True)
        self._thread.start()
        if not self._begun.wait(_START_SECONDS):
            raise InvalidArgument(f"the webhook does not listen on port {self.port} after {_START_SECONDS:g} s")

    @property
    def has_certificate(self) -> bool:
        """Whether handshakes can succeed."""
        return self._served is not None

    def install(self, pair: Pair) -> None:
        """Serve a certificate from the next connection on.

        Raises:
            InvalidArgument: it cannot be used; the previous one is still served.
        """
        if pair == self._served:
            return
        _load(_context(), pair)
        done: threading.Event = threading.Event()

        def change() -> None:
            # In the loop's own thread, so that no handshake runs concurrently.
            _load(self._tls, pair)
            done.set()

        self._loop.call_soon_threadsafe(change)
        if not done.wait(_START_SECONDS):
            raise InvalidArgument("the webhook's server does not answer any more")
        self._served = pair

    def close(self) -> None:
        """Finish requests in progress, and stop."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        application = web.Application(client_max_size=requests.MAX_BODY_BYTES)
        application.router.add_post(PATH, self._with_mounts)
        application.router.add_post(PATH_WITHOUT_MOUNTS, self._without_mounts)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_STOP_SECONDS)
        try:
            self._loop.run_until_complete(runner.setup())
            site = web.SockSite(runner, self._socket, ssl_context=self._tls, backlog=128)
            self._loop.run_until_complete(site.start())
            self._loop.call_soon(self._begun.set)
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(runner.cleanup())
            self._loop.close()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._ready():
            return web.Response(text="ok")
        return web.Response(status=503, text="where objects are is not known yet")

    async def _with_mounts(self, request: web.Request) -> web.Response:
        return await self._mutate(request, True)

    async def _without_mounts(self, request: web.Request) -> web.Response:
        return await self._mutate(request, False)

    async def _mutate(self, request: web.Request, mounts: bool) -> web.Response:
        began = time.perf_counter()
        result: Result = "failed"
        try:
            if request.content_type != "application/json":
                result = "invalid"
                return web.Response(status=415, text=f"application/json is wanted, not {request.content_type!r}")
            try:
                answered, result = await self._answer(request, mounts, began)
            except InvalidArgument as error:
                result = "invalid"
                return web.Response(status=400, text=str(error))
            except web.HTTPRequestEntityTooLarge:
                result = "invalid"
                return web.Response(status=413, text=f"more than {requests.MAX_BODY_BYTES} bytes")
            except asyncio.TimeoutError:
                result = "late"
                return web.Response(status=503, text="too late: the request did not come, or too many others did")
            return web.Response(body=answered, content_type="application/json")
        finally:
            self._counters.add(result, time.perf_counter() - began)

    async def _answer(self, request: web.Request, mounts: bool, began: float) -> tuple[bytes, Result]:
        end = began + self._settings.deadline

        def left() -> float:
            return max(0.0, end - time.perf_counter())

        # Create a task and a timer only if waiting is necessary: usually there is a free slot, and the body has
        # arrived.
        if self._at_once.locked():
            await asyncio.wait_for(self._at_once.acquire(), left())
        else:
            await self._at_once.acquire()
        try:
            body = await (request.read() if request.content.is_eof() else asyncio.wait_for(request.read(), left()))
            review = requests.read(body)
            verdict = await self._verdict(review, mounts, left())
        finally:
            self._at_once.release()
        warnings = [f"Entrepot: {one.text}" for one in verdict.reasons]
        if self._told is not None and verdict.reasons and not review.dry_run:
            self._told(review, verdict.reasons)
        return requests.answer(review.uid, verdict.patch, warnings), verdict.result

    async def _verdict(self, review: Review, mounts: bool, seconds: float) -> Verdict:
        deciding = self._loop.run_in_executor(self._pool, self._decide, review, mounts)
        try:
            return await asyncio.wait_for(deciding, seconds)
        except asyncio.TimeoutError:
            text = f"no answer within {self._settings.deadline:g} s: the pod stays as it is"
            return Verdict("late", reasons=[Reason("late", text)])
        except EntrepotError as error:
            return Verdict("failed", reasons=[Reason("failed", f"{error}: the pod stays as it is")])
        except Exception as error:  # whatever is wrong here, the pod must be created
            log.exception("the webhook failed; the pod stays as it is")
            text = f"an error in the webhook ({type(error).__name__}): the pod stays as it is"
            return Verdict("failed", reasons=[Reason("failed", text)])


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    # OpenSSL reads only files. This one is in memory and has no name, so that the key never reaches a disk.
    descriptor = os.memfd_create("entrepot-certificate", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(pair.certificate + b"\n" + pair.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the webhook's certificate cannot be used: {error}") from error
    finally:
        os.close(descriptor)


def _listen(host: str, port: int) -> socket.socket:
    try:
        if host:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, port), family=family)
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise InvalidArgument(f"the webhook cannot listen on {host or 'any address'}, port {port}: {error}") from error
