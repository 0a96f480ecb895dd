"""The paths of the page's server. Handlers are plain functions, which Starlette runs in threads: they may wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from entrepot._cli.common import to_json_value
from entrepot.errors import (
    AccessDenied,
    EntrepotError,
    InvalidArgument,
    ObjectLost,
    ObjectNotFound,
    StoreFull,
    StoreUnavailable,
    Timeout,
)
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from entrepot_ui.watch.actions import Actions
from entrepot_ui.watch.lineage import graph_of, places_with_lineage
from entrepot_ui.watch.policy_log import PolicyLog
from entrepot_ui.watch.preview import connect_to_read, preview
from entrepot_ui.watch.snapshot import Query
from entrepot_ui.watch.watcher import StoreWatcher
from entrepot_ui.web.cluster_hosts import ClusterHosts
from entrepot_ui.web.overview import overview
from entrepot_ui.web.security import Credentials, Guard, parse_body

MAX_STREAMS = 32  # of events at a time; each is a page that is open
EVENT_INTERVAL = 0.25  # seconds between two looks at the log of events, in this process
TICK_EVERY = 4  # looks
MAX_PLACES = 200  # sessions whose lineage may be chosen
BODY_TIMEOUT = 10.0  # seconds
MAX_BLOBS = 100  # of one object that are shown
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_STATUS: list[tuple[type[EntrepotError], int]] = [
    (InvalidArgument, 400),
    (AccessDenied, 403),
    (ObjectNotFound, 404),
    (ObjectLost, 410),
    (StoreFull, 507),
    (Timeout, 504),
    (StoreUnavailable, 503),
]


class Page:
    """What the handlers use.

    Attributes:
        address: of the store.
        watcher, policy_log, actions, hosts: what is known and done.
        credentials: the token.
        streams: number of open streams of events; of the event loop's thread.
    """

    def __init__(
        self,
        address: str,
        watcher: StoreWatcher,
        policy_log: PolicyLog,
        hosts: ClusterHosts,
        credentials: Credentials,
    ) -> None:
        self.address = address
        self.watcher = watcher
        self.policy_log = policy_log
        self.hosts = hosts
        self.credentials = credentials
        self.actions = Actions(lambda: connect_to_read(address))
        self.streams = 0


def create_app(page: Page, names: frozenset[str]) -> Starlette:
    """The application; ``names`` are the host names by which it is reached."""
    routes = [
        Route("/", _asset_handler("index.html")),
        Route("/favicon.ico", _asset_handler("icon.svg")),
        *(Route(f"/assets/{name}", _asset_handler(name)) for name in _asset_names()),
        Route("/api/login", _handler(page, login), methods=["POST"]),
        Route("/api/session", _handler(page, session)),
        Route("/api/overview", _handler(page, get_overview)),
        Route("/api/objects", _handler(page, list_objects)),
        Route("/api/objects/{oid}", _handler(page, describe)),
        Route("/api/objects/{oid}/preview", _handler(page, show_rows)),
        Route("/api/pins", _handler(page, list_pins)),
        Route("/api/largest", _handler(page, list_largest)),
        Route("/api/lineage", _handler(page, draw_lineage)),
        Route("/api/policy", _handler(page, list_decisions)),
        Route("/api/cluster", _handler(page, list_hosts)),
        Route("/api/events", _handler(page, list_events)),
        Route("/api/events/stream", _event_streamer(page)),
        Route("/metrics", _handler(page, serve_metrics)),
        Route("/api/actions/{action}", _action_handler(page), methods=["POST"]),
    ]
    guard = Middleware(Guard, credentials=page.credentials, names=names)
    return Starlette(routes=routes, middleware=[guard], exception_handlers={404: _not_found, 405: _not_found})


def login(page: Page, request: Request) -> Response:
    """Exchange the token, which the guard has checked, for a cookie."""
    response = session(page, request)
    response.set_cookie(
        page.credentials.cookie_name, page.credentials.cookie, httponly=True, samesite="strict", path="/"
    )
    return response


def session(page: Page, request: Request) -> Response:
    """What a page needs to change something."""
    return JSONResponse({"csrf": page.credentials.csrf, "address": page.address})


def get_overview(page: Page, request: Request) -> Response:
    """State and memory."""
    return JSONResponse(overview(page.watcher.view(), request.query_params.get("by", "session")))


def list_objects(page: Page, request: Request) -> Response:
    """One page of the table."""
    parameters = request.query_params
    query = Query(
        parameters.get("search", ""), parameters.get("sort", "nbytes"), parameters.get("descending", "1") == "1"
    )
    view = page.watcher.view()
    content = view.snapshot.page(query, _number(request, "offset", 0), _number(request, "limit", 100))
    return JSONResponse(content | {"pinned_here": page.actions.pinned()})


def describe(page: Page, request: Request) -> Response:
    """Everything about one object."""
    with connect_to_read(page.address) as store:
        info = to_json_value(store.info(request.path_params["oid"]))
    since = [pin for pin in page.watcher.view().details.pins if pin["id"] == info["id"]]
    blobs = info.pop("blobs")
    return JSONResponse(info | {"blobs": blobs[:MAX_BLOBS], "blob_count": len(blobs), "pins_seen": since})


def show_rows(page: Page, request: Request) -> Response:
    """The first rows of one object."""
    load = request.query_params.get("load", "0") == "1"
    with connect_to_read(page.address) as store:
        return JSONResponse(preview(store, request.path_params["oid"], _number(request, "rows", 20), load=load))


def list_pins(page: Page, request: Request) -> Response:
    """Who pins what, and since when."""
    details = page.watcher.view().details
    return JSONResponse({"pins": details.pins, "complete": details.complete, "pinned_here": page.actions.pinned()})


def list_largest(page: Page, request: Request) -> Response:
    """The largest objects, with what they share."""
    details = page.watcher.view().details
    return JSONResponse({"objects": details.objects, "complete": details.complete})


def draw_lineage(page: Page, request: Request) -> Response:
    """The graph of one session: by default, the one with the newest objects."""
    view = page.watcher.view()
    places = places_with_lineage(view.snapshot.rows, view.details)
    place = request.query_params.get("place") or next(iter(places), "")
    graph: dict[str, Any] = {"nodes": [], "edges": [], "unreadable": 0, "truncated": False}
    scope = next((row.scope for row in view.snapshot.rows if row.place == place), None)
    if scope is not None:
        with connect_to_read(page.address, scope) as store:
            graph = graph_of(store, view.snapshot.rows, view.details, place)
    return JSONResponse({"places": places[:MAX_PLACES], "place": place, **graph})


def list_decisions(page: Page, request: Request) -> Response:
    """What the failover policies decided."""
    return JSONResponse(page.policy_log.to_json())


def list_hosts(page: Page, request: Request) -> Response:
    """The hosts of the cluster."""
    return JSONResponse(page.hosts.hosts())


def list_events(page: Page, request: Request) -> Response:
    """The latest events."""
    events = page.watcher.events.after(_number(request, "after", 0))
    return JSONResponse({"events": [event.to_json() for event in events]})


def serve_metrics(page: Page, request: Request) -> Response:
    """The metrics of ``entrepot metrics``, for a Prometheus that has the token."""
    if find_spec("prometheus_client") is None:
        raise InvalidArgument(
            "/metrics needs prometheus_client where entrepot ui runs: pip install 'entrepot[metrics]'"
        )
    from entrepot_metrics.exposition import exposition

    view = page.watcher.view()
    content, media_type = exposition(view.status if view.state == "live" else None, request.headers.get("accept", ""))
    return Response(content, headers={"content-type": media_type})


def _action_handler(page: Page) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        try:
            body = await asyncio.wait_for(request.body(), BODY_TIMEOUT)
        except asyncio.TimeoutError:
            return JSONResponse({"error": f"the body did not arrive within {BODY_TIMEOUT:g} s"}, 408)
        return await asyncio.to_thread(_answered, lambda: _act(page, request.path_params["action"], body))

    return handle


def _act(page: Page, action: str, body: bytes) -> Response:
    try:
        options = parse_body(body)
    except ValueError as error:
        raise InvalidArgument(f"the body is not what it should be: {error}") from None
    ids = options.get("ids")
    if not isinstance(ids, list) or not all(isinstance(oid, str) for oid in ids):
        raise InvalidArgument("ids must be a list of object IDs")
    result = page.actions.run(action, ids, options)
    page.watcher.look_now()
    return JSONResponse(result)


def _event_streamer(page: Page) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        if page.streams >= MAX_STREAMS:
            return JSONResponse({"error": f"{MAX_STREAMS} pages are open already"}, 503)
        text = request.headers.get("last-event-id", "0")
        last = int(text) if text.isdecimal() else 0
        return StreamingResponse(_event_lines(page, last), media_type="text/event-stream")

    return handle


async def _event_lines(page: Page, last: int) -> AsyncIterator[str]:
    """Server-sent events: ``happened`` for each event; ``tick`` about once a second, when a page may look again."""
    page.streams += 1
    try:
        look = 0
        while True:
            for event in page.watcher.events.after(last):
                last = event.number
                yield f"id: {last}\nevent: happened\ndata: {json.dumps(event.to_json())}\n\n"
            if look % TICK_EVERY == 0:
                view = page.watcher.view()
                data = {"state": view.state, "reason": view.reason, "listed_at": view.snapshot.taken_at}
                yield f"event: tick\ndata: {json.dumps(data)}\n\n"
            look += 1
            await asyncio.sleep(EVENT_INTERVAL)
    finally:
        page.streams -= 1


def _handler(page: Page, function: Callable[[Page, Request], Response]) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        return _answered(lambda: function(page, request))

    return handle


def _answered(function: Callable[[], Response]) -> Response:
    try:
        return function()
    except EntrepotError as error:
        code = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        return JSONResponse({"error": str(error), "code": error.code}, code)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or len(text) > 12:
        raise InvalidArgument(f"{name} must be a whole number, not {text!r}")
    return int(text)


def _asset_names() -> list[str]:
    return sorted(item.name for item in files("entrepot_ui").joinpath("assets").iterdir() if item.is_file())


def _asset_handler(name: str) -> Callable[[Request], Response]:
    content = files("entrepot_ui").joinpath("assets", name).read_bytes()
    media_type = _TYPES[name.rpartition(".")[2]]

    def handle(request: Request) -> Response:
        return Response(content, media_type=media_type)

    return handle


async def _not_found(request: Request, error: Exception) -> Response:
    code = getattr(error, "status_code", 404)
    return JSONResponse({"error": f"{request.method} {request.url.path} is nothing that is served here"}, code)
