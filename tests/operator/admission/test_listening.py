"""The server itself: TLS, invalid requests, the deadline, and certificates replaced while it runs."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_io.placement.reasons import Reason
from entrepot_operator.admission.authority import Held, Pair, advance
from entrepot_operator.admission.counting import Counters
from entrepot_operator.admission.listening import Server
from entrepot_operator.admission.requests import MAX_BODY_BYTES, Review
from entrepot_operator.admission.reviewing import Verdict
from entrepot_operator.admission.settings import PATH, PATH_WITHOUT_MOUNTS, Settings


def certificates() -> Held:
    return advance(None, datetime.now(timezone.utc), ("127.0.0.1",))


def review(uid: str = "u-1", **changes: Any) -> bytes:
    request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "team",
        "object": {"metadata": {"name": "p"}, "spec": {"containers": []}},
        **changes,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


class Running:
    """A running server, and clients that trust it."""

    def __init__(self, decide: Callable[[Review, bool], Verdict], deadline: float = 5.0) -> None:
        self.counters = Counters()
        self.told: list[tuple[Review, list[Reason]]] = []
        self.is_ready = True
        self.held = certificates()
        self.server = Server(
            Settings("system", host="127.0.0.1", port=0, deadline=deadline),
            decide,
            self.counters,
            lambda: self.is_ready,
            lambda one, reasons: self.told.append((one, reasons)),
        )
        self.server.install(self.held.server)

    def connect(self, bundle: bytes | None = None, **limits: Any) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cadata=(bundle or self.held.bundle).decode())
        for name, value in limits.items():
            setattr(context, name, value)
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=20, context=context)

    def ask(self, body: bytes, path: str = PATH, **headers: str) -> tuple[int, str]:
        connection = self.connect()
        connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def run(decide: Callable[[Review, bool], Verdict], **settings: Any) -> Running:
        started.append(Running(decide, **settings))
        return started[-1]

    yield run
    for one in started:
        one.server.close()


def nothing(_: Review, __: bool) -> Verdict:
    return Verdict("unchanged")


def test_a_verdict_becomes_an_answer(start: Callable[..., Running]) -> None:
    asked: list[tuple[str, bool]] = []

    def decide(one: Review, mounts: bool) -> Verdict:
        asked.append((one.namespace, mounts))
        return Verdict("injected", [{"op": "add", "path": "/spec/affinity", "value": {}}], [Reason("a-b", "so it is")])

    running = start(decide)
    status, text = running.ask(review())
    response = json.loads(text)["response"]
    assert (status, response["uid"], response["allowed"]) == (200, "u-1", True)
    assert json.loads(base64.b64decode(response["patch"]))[0]["path"] == "/spec/affinity"
    assert response["warnings"] == ["Entrepot: so it is"]
    running.ask(review(dryRun=True), PATH_WITHOUT_MOUNTS)
    assert asked == [("team", True), ("team", False)]
    assert len(running.told) == 1  # none for the dry run
    assert running.counters.results()["injected"] == 2
    samples = {(name, tuple(labels.items())): value for name, labels, value in running.counters.samples()}
    assert samples["entrepot_admission_seconds_count", ()] == 2
    assert samples["entrepot_admission_seconds_bucket", (("le", "+Inf"),)] == 2


def test_what_is_no_review_is_refused_at_the_door(start: Callable[..., Running]) -> None:
    running = start(nothing)
    assert running.ask(b"{}")[0] == 400
    assert running.ask(review(), **{"Content-Type": "text/plain"})[0] == 415
    assert running.ask(b" " * (MAX_BODY_BYTES + 1))[0] == 413
    assert running.ask(review(), "/elsewhere")[0] == 404
    assert running.ask(review())[0] == 200
    assert running.counters.results()["invalid"] == 3


def test_an_error_of_ours_leaves_the_pod_as_it_is(start: Callable[..., Running]) -> None:
    def fail(one: Review, _: bool) -> Verdict:
        raise InvalidArgument("typed") if one.uid == "typed" else ZeroDivisionError("a bug")

    running = start(fail)
    for uid, match in (("typed", "typed"), ("u-1", "ZeroDivisionError")):
        status, text = running.ask(review(uid))
        response = json.loads(text)["response"]
        assert (status, response["allowed"], "patch" in response) == (200, True, False)
        assert match in response["warnings"][0]
    assert running.counters.results()["failed"] == 2


def test_whoever_does_not_know_in_time_says_so(start: Callable[..., Running]) -> None:
    known: threading.Event = threading.Event()

    def hang(_: Review, __: bool) -> Verdict:
        known.wait(30)
        return Verdict("injected", [{"op": "add", "path": "/spec/affinity", "value": {}}])

    running = start(hang, deadline=0.2)
    try:
        # More requests than threads: those that never get a thread are answered too.
        answers: list[tuple[int, str]] = []
        askers = [threading.Thread(target=lambda: answers.append(running.ask(review()))) for _ in range(6)]
        for one in askers:
            one.start()
        for one in askers:
            one.join(20)
        assert len(answers) == 6
        for status, text in answers:
            response = json.loads(text)["response"]
            assert (status, response["allowed"], "patch" in response) == (200, True, False)
            assert "within 0.2 s" in response["warnings"][0]
        assert running.counters.results()["late"] == 6
    finally:
        known.set()


def test_a_body_that_does_not_come_holds_nobody_up(start: Callable[..., Running]) -> None:
    running = start(nothing, deadline=0.2)
    slow = running.connect()
    slow.putrequest("POST", PATH)
    slow.putheader("Content-Type", "application/json")
    slow.putheader("Content-Length", "100")
    slow.endheaders(b"{")
    assert running.ask(review())[0] == 200
    assert slow.getresponse().status == 503
    slow.close()


def test_tls_is_as_new_as_it_should_be(start: Callable[..., Running]) -> None:
    running = start(nothing)
    connection = running.connect(minimum_version=ssl.TLSVersion.TLSv1_2)
    connection.connect()
    assert isinstance(connection.sock, ssl.SSLSocket)
    assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")
    connection.close()
    with socket.create_connection(("127.0.0.1", running.server.port)) as plain:
        plain.sendall(b"POST / HTTP/1.1\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP/1.1 200")


def test_a_certificate_is_exchanged_while_it_runs(start: Callable[..., Running]) -> None:
    running = start(nothing)
    kept = running.connect()
    kept.request("POST", PATH, review(), {"Content-Type": "application/json"})
    assert kept.getresponse().read()
    before, running.held = running.held, certificates()
    running.server.install(running.held.server)
    assert running.ask(review())[0] == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        running.connect(before.bundle).connect()
    kept.request("POST", PATH, review(), {"Content-Type": "application/json"})  # open connections are not affected
    assert kept.getresponse().status == 200
    kept.close()
    with pytest.raises(InvalidArgument, match="cannot be used"):
        running.server.install(Pair(running.held.server.certificate, before.server.key))
    assert running.ask(review())[0] == 200


def test_probes(start: Callable[..., Running]) -> None:
    running = start(nothing)

    def probe(path: str) -> int:
        connection = running.connect()
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status

    assert (probe("/healthz"), probe("/readyz")) == (200, 200)
    running.is_ready = False
    assert (probe("/healthz"), probe("/readyz")) == (200, 503)


def test_a_port_that_is_taken_is_a_typed_error(start: Callable[..., Running]) -> None:
    running = start(nothing)
    with pytest.raises(InvalidArgument, match="cannot listen"):
        Server(Settings("system", host="127.0.0.1", port=running.server.port), nothing, Counters(), lambda: True, None)
