"""Probes, metrics as text, and log lines."""

from __future__ import annotations

import io
import json
import logging
import sys
import urllib.error
import urllib.request

import pytest
from entrepot.cli import main
from entrepot.errors import InvalidArgument
from entrepot_operator.controller.monitoring import json_logging
from entrepot_operator.controller.monitoring.health import HealthServer
from entrepot_operator.controller.monitoring.metrics import Metrics
from entrepot_operator.webhook.metrics import Counters
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_probes_say_what_is_wrong() -> None:
    wrong: list[str] = []
    server = HealthServer("127.0.0.1", 0, list, lambda: wrong, CollectorRegistry())
    try:
        assert get(server.port, "/healthz") == (200, "ok\n")
        assert get(server.port, "/readyz?verbose") == (200, "ok\n")
        wrong.append("stores have not been read yet")
        assert get(server.port, "/readyz") == (503, "stores have not been read yet\n")
        assert get(server.port, "/metrics") == (200, "")
        assert get(server.port, "/")[0] == 404
    finally:
        server.close()


def test_an_address_that_is_taken_is_named() -> None:
    server = HealthServer("127.0.0.1", 0, list, list, CollectorRegistry())
    try:
        with pytest.raises(InvalidArgument, match=f"on 127.0.0.1, port {server.port}"):
            HealthServer("127.0.0.1", server.port, list, list, CollectorRegistry())
    finally:
        server.close()


def parsed(text: str) -> dict[str, tuple[str, dict[str, float]]]:
    """Of each metric by its name: its type, and the values by the rest of the line."""
    return {
        metric.name: (
            metric.type,
            {
                sample.name.removeprefix(metric.name)
                + "".join(f" {key}={value}" for key, value in sample.labels.items()): sample.value
                for sample in metric.samples
            },
        )
        for metric in text_string_to_metric_families(text)
    }


def test_metrics_are_written_as_prometheus_reads_them() -> None:
    metrics, counters = Metrics(), Counters()
    metrics.registry.register(counters)
    metrics.work.labels("store", "done").inc()
    metrics.work.labels("store", "done").inc()
    metrics.work.labels("pod", 'a"b\\c\nd').inc()
    metrics.work_seconds.labels("store").observe(0.5)
    metrics.work_seconds.labels("store").observe(0.25)
    metrics.labels.labels("ready").inc()
    metrics.gates_lifted.labels("Ready").inc()
    metrics.sweeps.inc()
    counters.add("injected", 0.003)
    counters.add("late", 7.0)
    server = HealthServer("127.0.0.1", 0, list, list, metrics.registry)
    try:
        status, text = get(server.port, "/metrics")
    finally:
        server.close()
    bounds = {"0.001": 0, "0.0025": 0, **dict.fromkeys(("0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5"), 1)}
    results = dict.fromkeys(("unchanged", "unknown", "invalid", "failed"), 0)
    assert status == 200
    assert parsed(text) == {
        "entrepot_admission_reviews": (
            "counter",
            {f"_total result={name}": value for name, value in {**results, "injected": 1, "late": 1}.items()},
        ),
        "entrepot_admission_seconds": (
            "histogram",
            {f"_bucket le={bound}": value for bound, value in {**bounds, "1.0": 1, "+Inf": 2}.items()}
            | {"_sum": 7.003, "_count": 2},
        ),
        "entrepot_operator_gates_lifted": ("counter", {"_total reason=Ready": 1}),
        "entrepot_operator_labels": ("counter", {"_total to=ready": 1}),
        "entrepot_operator_sweeps": ("counter", {"_total": 1}),
        "entrepot_operator_work": (
            "counter",
            {"_total kind=store result=done": 2, '_total kind=pod result=a"b\\c\nd': 1},
        ),
        "entrepot_operator_work_seconds": ("summary", {"_sum kind=store": 0.75, "_count kind=store": 2}),
    }
    assert "# TYPE entrepot_operator_work_total counter\n" in text
    assert "# HELP entrepot_operator_work_total Resources that the leader processed" in text


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=x", ""),  # versions of the library differ
        ("application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5", "application/openmetrics-text"),
    ],
)
def test_metrics_are_in_the_format_that_is_asked_for(accept: str, content_type: str) -> None:
    metrics = Metrics()
    metrics.sweeps.inc()
    server = HealthServer("127.0.0.1", 0, list, list, metrics.registry)
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=10) as answer:
            received, text = answer.headers["Content-Type"], answer.read().decode()
    finally:
        server.close()
    assert received.startswith(content_type)
    assert "entrepot_operator_sweeps_total 1.0\n" in text
    assert text.endswith("# EOF\n") == received.startswith("application/openmetrics-text")


def test_the_operator_says_which_package_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "prometheus_client", None)
        assert main(["operator"]) != 0
    assert "pip install 'entrepot[operator]'" in capsys.readouterr().err


def test_lines_of_the_log_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    kept = json_logging.log.handlers[:], json_logging.log.level, json_logging.log.propagate
    try:
        json_logging.log_to_stderr()
        logging.getLogger("entrepot_operator.controller").warning(
            "node %s", "a", extra=json_logging.log_fields(node="a")
        )
        try:
            raise ValueError("told")
        except ValueError:
            json_logging.log.exception("went wrong")
    finally:
        json_logging.log.handlers[:], json_logging.log.level, json_logging.log.propagate = kept
    first, second = [json.loads(line) for line in written.getvalue().splitlines()]
    assert (first["level"], first["message"], first["node"]) == ("warning", "node a", "a")
    assert "ValueError: told" in second["traceback"]
