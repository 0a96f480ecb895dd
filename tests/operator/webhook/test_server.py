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
from entrepot_operator.placement.warnings import PlacementWarning
from entrepot_operator.webhook.admission_review import MAX_BODY_BYTES, Review
from entrepot_operator.webhook.certificates import CertificateBundle, KeyPair, rotate
from entrepot_operator.webhook.handler import Decision
from entrepot_operator.webhook.metrics import Counters
from entrepot_operator.webhook.server import Server
from entrepot_operator.webhook.settings import PATH, PATH_WITHOUT_MOUNTS, Settings


def certificates() -> CertificateBundle:
    return rotate(None, datetime.now(timezone.utc), ("127.0.0.1",))


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


class RunningServer:
    """A running server, and clients that trust it."""

    def __init__(self, decide: Callable[[Review, bool], Decision], deadline: float = 5.0) -> None:
        self.counters = Counters()
        self.reported: list[tuple[Review, list[PlacementWarning]]] = []
        self.is_ready = True
        self.certificates = certificates()
        self.server = Server(
            Settings("system", host="127.0.0.1", port=0, deadline=deadline),
            decide,
            self.counters,
            lambda: self.is_ready,
            lambda request, warnings: self.reported.append((request, warnings)),
        )
        self.server.install(self.certificates.server)

    def connect(self, bundle: bytes | None = None, **limits: Any) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cadata=(bundle or self.certificates.ca_bundle).decode())
        for name, value in limits.items():
            setattr(context, name, value)
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=20, context=context)

    def post(self, body: bytes, path: str = PATH, **headers: str) -> tuple[int, str]:
        connection = self.connect()
        connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text


@pytest.fixture
def start() -> Iterator[Callable[..., RunningServer]]:
    started: list[RunningServer] = []

    def run(decide: Callable[[Review, bool], Decision], **settings: Any) -> RunningServer:
        started.append(RunningServer(decide, **settings))
        return started[-1]

    yield run
    for server in started:
        server.server.close()


def nothing(_: Review, __: bool) -> Decision:
    return Decision("unchanged")


def test_a_verdict_becomes_an_answer(start: Callable[..., RunningServer]) -> None:
    requests: list[tuple[str, bool]] = []

    def decide(request: Review, mounts: bool) -> Decision:
        requests.append((request.namespace, mounts))
        return Decision(
            "injected", [{"op": "add", "path": "/spec/affinity", "value": {}}], [PlacementWarning("a-b", "so it is")]
        )

    running = start(decide)
    status, text = running.post(review())
    response = json.loads(text)["response"]
    assert (status, response["uid"], response["allowed"]) == (200, "u-1", True)
    assert json.loads(base64.b64decode(response["patch"]))[0]["path"] == "/spec/affinity"
    assert response["warnings"] == ["Entrepot: so it is"]
    running.post(review(dryRun=True), PATH_WITHOUT_MOUNTS)
    assert requests == [("team", True), ("team", False)]
    assert len(running.reported) == 1  # none for the dry run
    assert running.counters.results()["injected"] == 2
    samples = {
        (sample.name, tuple(sample.labels.items())): sample.value
        for metric in running.counters.collect()
        for sample in metric.samples
    }
    assert samples["entrepot_admission_seconds_count", ()] == 2
    assert samples["entrepot_admission_seconds_bucket", (("le", "+Inf"),)] == 2


def test_invalid_reviews_are_refused(start: Callable[..., RunningServer]) -> None:
    running = start(nothing)
    assert running.post(b"{}")[0] == 400
    assert running.post(review(), **{"Content-Type": "text/plain"})[0] == 415
    assert running.post(b" " * (MAX_BODY_BYTES + 1))[0] == 413
    assert running.post(review(), "/elsewhere")[0] == 404
    assert running.post(review())[0] == 200
    assert running.counters.results()["invalid"] == 3


def test_an_error_of_ours_leaves_the_pod_as_it_is(start: Callable[..., RunningServer]) -> None:
    def fail(request: Review, _: bool) -> Decision:
        raise InvalidArgument("typed") if request.uid == "typed" else ZeroDivisionError("a bug")

    running = start(fail)
    for uid, match in (("typed", "typed"), ("u-1", "ZeroDivisionError")):
        status, text = running.post(review(uid))
        response = json.loads(text)["response"]
        assert (status, response["allowed"], "patch" in response) == (200, True, False)
        assert match in response["warnings"][0]
    assert running.counters.results()["failed"] == 2


def test_a_late_decision_becomes_a_warning(start: Callable[..., RunningServer]) -> None:
    release: threading.Event = threading.Event()

    def hang(_: Review, __: bool) -> Decision:
        release.wait(30)
        return Decision("injected", [{"op": "add", "path": "/spec/affinity", "value": {}}])

    running = start(hang, deadline=0.2)
    try:
        # More requests than threads: those that never get a thread are answered too.
        answers: list[tuple[int, str]] = []
        askers = [threading.Thread(target=lambda: answers.append(running.post(review()))) for _ in range(6)]
        for thread in askers:
            thread.start()
        for thread in askers:
            thread.join(20)
        assert len(answers) == 6
        for status, text in answers:
            response = json.loads(text)["response"]
            assert (status, response["allowed"], "patch" in response) == (200, True, False)
            assert "within 0.2 s" in response["warnings"][0]
        assert running.counters.results()["late"] == 6
    finally:
        release.set()


def test_few_requests_are_in_progress_at_a_time(
    start: Callable[..., RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrepot_operator.webhook.server._MAX_CONCURRENT_REQUESTS", 1)
    others: threading.Event = threading.Event()
    running_now: list[int] = [0]

    def decide(_: Review, __: bool) -> Decision:
        running_now[0] += 1
        if running_now[0] > 1:
            others.set()
        others.wait(0.3)  # long enough for another request to get this far
        running_now[0] -= 1
        return Decision("unchanged")

    running = start(decide)
    answers: list[int] = []
    askers = [threading.Thread(target=lambda: answers.append(running.post(review())[0])) for _ in range(3)]
    for thread in askers:
        thread.start()
    for thread in askers:
        thread.join(20)
    assert answers == [200, 200, 200]
    assert not others.is_set()


def test_a_body_that_does_not_come_holds_nobody_up(start: Callable[..., RunningServer]) -> None:
    running = start(nothing, deadline=0.2)
    slow = running.connect()
    slow.putrequest("POST", PATH)
    slow.putheader("Content-Type", "application/json")
    slow.putheader("Content-Length", "100")
    slow.endheaders(b"{")
    assert running.post(review())[0] == 200
    assert slow.getresponse().status == 503
    slow.close()


def test_tls_is_as_new_as_it_should_be(start: Callable[..., RunningServer]) -> None:
    running = start(nothing)
    connection = running.connect(minimum_version=ssl.TLSVersion.TLSv1_2)
    connection.connect()
    assert isinstance(connection.sock, ssl.SSLSocket)
    assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")
    connection.close()
    with socket.create_connection(("127.0.0.1", running.server.port)) as plain:
        plain.sendall(b"POST / HTTP/1.1\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP/1.1 200")


def test_a_certificate_is_exchanged_while_it_runs(start: Callable[..., RunningServer]) -> None:
    running = start(nothing)
    kept = running.connect()
    kept.request("POST", PATH, review(), {"Content-Type": "application/json"})
    assert kept.getresponse().read()
    before, running.certificates = running.certificates, certificates()
    running.server.install(running.certificates.server)
    assert running.post(review())[0] == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        running.connect(before.ca_bundle).connect()
    kept.request("POST", PATH, review(), {"Content-Type": "application/json"})  # open connections are not affected
    assert kept.getresponse().status == 200
    kept.close()
    with pytest.raises(InvalidArgument, match="cannot be used"):
        running.server.install(KeyPair(running.certificates.server.certificate, before.server.key))
    assert running.post(review())[0] == 200


def test_probes(start: Callable[..., RunningServer]) -> None:
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


def test_a_port_that_is_taken_is_a_typed_error(start: Callable[..., RunningServer]) -> None:
    running = start(nothing)
    with pytest.raises(InvalidArgument, match="cannot listen"):
        Server(Settings("system", host="127.0.0.1", port=running.server.port), nothing, Counters(), lambda: True, None)
