"""The API client: what it retries, when it gives up, and what it returns."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import AccessDenied
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from entrepot_operator.kubernetes.errors import ClusterRefused, ClusterUnavailable, ListExpired, ResourceNotFound
from scripted_api import without_credentials
from tls_servers import SECONDS, Cluster, LoopbackServer

NODE = "/api/v1/nodes/node-a"


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_what_may_succeed_later_is_tried_again(server: Any, status: int) -> None:
    server.failures = [(status, {}, {"message": "busy"})] * 3
    assert server.api().get(NODE)["metadata"]["name"] == "node-a"
    assert len(server.requests) == 4


def test_retry_after_is_respected_within_the_timeout(server: Any) -> None:
    server.failures = [(429, {"Retry-After": "30"}, {"message": "too many requests"})]
    with pytest.raises(ClusterUnavailable, match=r"429.*too many requests"):
        server.api(patience=5).get(NODE)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind", "match"),
    [
        (401, AccessDenied, "log in"),
        (403, AccessDenied, "a Role with this verb"),
        (404, ResourceNotFound, "404"),
        (409, ClusterRefused, "409"),
        (422, ClusterRefused, "broken"),
    ],
)
def test_what_is_refused_is_not_tried_again(server: Any, status: int, kind: type[Exception], match: str) -> None:
    server.failures = [(status, {}, {"message": "broken", "reason": "Because"})]
    with pytest.raises(kind, match=match):
        server.api().get(NODE)
    assert len(server.requests) == 1


def test_a_quota_is_named_as_the_cause(server: Any) -> None:
    server.failures = [(403, {}, {"message": "exceeded quota: objects"})]
    with pytest.raises(AccessDenied, match="raise the ResourceQuota"):
        server.api().apply("/x", {}, "me")


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(ClusterUnavailable, match=r"GET .*http://127\.0\.0\.1:9 does not respond"):
        Api(without_credentials("http://127.0.0.1:9"), patience=0).get(NODE)


def test_an_answer_that_is_no_json_is_no_answer(server: Any) -> None:
    server.failures = [(200, {}, "<html>a proxy's page</html>")]
    with pytest.raises(ClusterUnavailable, match="a proxy's page"):
        server.api(patience=0).get(NODE)


def test_an_answer_without_end_is_not_read(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrepot_operator.kubernetes.api.MAX_ANSWER_BYTES", 20)
    with pytest.raises(ClusterUnavailable, match="exceeds 20 bytes"):
        server.api(patience=0).get(NODE)


def test_a_server_that_accepts_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrepot_operator.kubernetes.api.REQUEST_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterUnavailable, match=r"does not respond.*timed out"):
            Api(without_credentials(url), patience=0).get(NODE)


def test_long_lists_come_in_pages_and_begin_again_when_they_expire(server: Any) -> None:
    for index in range(1200):
        server.put(f"/api/v1/nodes/n{index}", {"metadata": {"name": f"n{index}"}})
    api = server.api()
    assert len(api.read_all("/api/v1/nodes")) == 1201
    assert len(server.requests) == 3
    expired: tuple[int, dict[str, str], Any] = (
        410,
        {},
        {"reason": "Expired", "message": "the provided continue parameter is too old"},
    )
    server.failures = [None, expired]
    assert len(api.read_all("/api/v1/nodes")) == 1201
    server.failures = [None, expired, None, expired, None, expired]
    with pytest.raises(ListExpired):
        api.read_all("/api/v1/nodes")


def test_time_is_the_servers(server: Any) -> None:
    api = server.api()
    api.get(NODE)
    assert abs((api.now() - server.now).total_seconds()) < 5


def test_time_does_not_go_back_when_the_server_repeats_its_second(server: Any) -> None:
    elapsed = [0.0]
    api = Api(without_credentials(server.url, "stores"), clock=lambda: elapsed[0])
    api.get(NODE)
    elapsed[0] = 0.9
    assert (api.now() - server.now).total_seconds() == pytest.approx(0.9)
    before = api.now()
    api.get(NODE)
    assert api.now() >= before
    server.pass_time(30)
    api.get(NODE)
    assert (api.now() - before).total_seconds() > 29


def test_deleting_what_is_gone_is_no_error(server: Any) -> None:
    api = server.api()
    assert api.delete(NODE)
    assert not api.delete(NODE)


def test_a_watch_yields_events_that_arrive_in_parts_and_ends_when_aborted(tmp_path: Path) -> None:
    """Over TLS and in chunks, as an API server sends them."""
    event = b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"2"}}}\n'
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (event[:20], event[20:] + event + event[:5], event[5:]):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
            released.wait(SECONDS)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    cluster = Cluster(tmp_path)
    server = LoopbackServer(Handler, cluster.context)
    api = Api(find(cluster.kubeconfig({"server": f"https://127.0.0.1:{server.port}"})), patience=0)
    seen: list[str] = []
    followed = threading.Event()
    error: list[Exception] = []

    def follow() -> None:
        try:
            for kind, _ in api.watch("/api/v1/nodes", "1"):
                seen.append(kind)
                if len(seen) == 4:
                    followed.set()
        except ClusterUnavailable as caught:
            error.append(caught)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        assert followed.wait(SECONDS)
        api.abort()
        thread.join(SECONDS / 2)
        assert not thread.is_alive()
    finally:
        released.set()
        server.stop()
        cluster.stop()
    assert (seen, len(error)) == (["BOOKMARK", "ADDED", "ADDED", "ADDED"], 1)
