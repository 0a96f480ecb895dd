"""Probes, metrics as text, and log lines."""

from __future__ import annotations

import io
import json
import logging
import urllib.error
import urllib.request

import pytest
from entrepot.errors import InvalidArgument
from entrepot_operator.controller.monitoring import json_logging
from entrepot_operator.controller.monitoring.health import HealthServer
from entrepot_operator.controller.monitoring.metrics import Metrics


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_probes_say_what_is_wrong() -> None:
    wrong: list[str] = []
    server = HealthServer("127.0.0.1", 0, list, lambda: wrong, lambda: "x 1\n")
    try:
        assert get(server.port, "/healthz") == (200, "ok\n")
        assert get(server.port, "/readyz?verbose") == (200, "ok\n")
        wrong.append("stores have not been read yet")
        assert get(server.port, "/readyz") == (503, "stores have not been read yet\n")
        assert get(server.port, "/metrics") == (200, "x 1\n")
        assert get(server.port, "/")[0] == 404
    finally:
        server.close()


def test_an_address_that_is_taken_is_named() -> None:
    server = HealthServer("127.0.0.1", 0, list, list, lambda: "")
    try:
        with pytest.raises(InvalidArgument, match=f"on 127.0.0.1, port {server.port}"):
            HealthServer("127.0.0.1", server.port, list, list, lambda: "")
    finally:
        server.close()


def test_metrics_are_written_as_prometheus_reads_them() -> None:
    metrics = Metrics()
    metrics.count("work_total", kind="store", result="done")
    metrics.count("work_total", kind="store", result="done")
    metrics.count("work_total", kind='a"b\\c\nd')
    metrics.count("seconds_sum", 0.5)
    metrics.count("seconds_count")
    metrics.add_source(lambda: [("leading", {}, 1.0), ("admit_bucket", {"le": "+Inf"}, 3), ("admit_sum", {}, 0.25)])
    assert metrics.text() == (
        "# TYPE admit histogram\n"
        'admit_bucket{le="+Inf"} 3\n'
        "admit_sum 0.25\n"
        "# TYPE leading gauge\n"
        "leading 1\n"
        "# TYPE seconds summary\n"
        "seconds_sum 0.5\n"
        "seconds_count 1\n"
        "# TYPE work_total counter\n"
        'work_total{kind="store",result="done"} 2\n'
        'work_total{kind="a\\"b\\\\c\\nd"} 1\n'
    )


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
