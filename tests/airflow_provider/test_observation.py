"""Values in the metrics and in the lineage that Airflow itself reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import entrepot
import pytest
from entrepot_airflow.assets import convert_asset_to_openlineage
from otlp_receiver import Receiver, receiving
from recorded_steps import StepResults

DAGS = Path(__file__).with_name("observed_dags.py")


def sums(receiver: Receiver) -> dict[str, float]:
    """The last value of each counter that was received, over all its tags."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    values: dict[str, dict[str, float]] = {}
    for body in receiver.bodies["/v1/metrics"]:
        request: Any = ExportMetricsServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.sum.data_points:
                        tags = str(sorted((tag.key, tag.value.string_value) for tag in point.attributes))
                        values.setdefault(metric.name, {})[tags] = point.as_int or point.as_double
                    if metric.WhichOneof("data") != "sum":  # durations
                        values.setdefault(metric.name, {})
    return {name: sum(of_tags.values()) for name, of_tags in values.items()}


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.exhaustive
@pytest.mark.timeout(700)
def test_values_are_in_metrics_and_lineage(
    run_dags: Callable[..., StepResults], tmp_path: Path, module_daemon: Any
) -> None:
    lineage = tmp_path / "lineage.jsonl"
    with receiving() as receiver:
        seen = run_dags(
            DAGS,
            tmp_path,
            AIRFLOW__CORE__DAGS_FOLDER=str(DAGS.parent),
            AIRFLOW__OPENLINEAGE__TRANSPORT=json.dumps({"type": "file", "log_file_path": str(lineage), "append": True}),
            AIRFLOW__METRICS__OTEL_ON="True",
            AIRFLOW__WORKERS__STATE_STORE_BACKEND="entrepot_airflow.state_store.EntrepotStateStoreBackend",
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint,
            OTEL_METRIC_EXPORT_INTERVAL="200",
            ENTREPOT_TRACES="otlp",
        ).value("observed")
    assert seen["state"] == 100_000
    with entrepot.connect(module_daemon.address, scope="tests") as store:
        (session,) = [each for each in store.sessions() if each.session.startswith("airflow-state/observed/")]
        assert session.nbytes >= 100_000

    (made,) = seen["make"]["outputs"].values()
    assert made["dataset"] == "observed/make/frame"
    assert made["rows"] == 1000
    assert [name for name, _ in made["columns"]] == ["number", "text"]
    assert made["bytes"] > 8000
    assert seen["make"]["inputs"] == {}
    ((uri, used),) = [item for item in seen["use"]["inputs"].items() if item[1]["dataset"].endswith("return_value")]
    assert uri.startswith("entrepot://tests/airflow%2Fobserved%2Fmanual__")
    assert used["rows"] == 1000

    # What OpenLineage was sent when the tasks had ended: both values of the one, and what the other read.
    events = [json.loads(line) for line in lineage.read_text().splitlines()]
    ended = {event["job"]["name"]: event for event in events if event["eventType"] == "COMPLETE"}
    outputs = {dataset["name"]: dataset for dataset in ended["observed.make"]["outputs"]}
    assert outputs.keys() == {"observed/make/frame", "observed/make/return_value"}
    for dataset in outputs.values():
        assert dataset["namespace"] == "entrepot://tests"
        assert dataset["outputFacets"]["outputStatistics"]["rowCount"] == 1000
        assert dataset["outputFacets"]["outputStatistics"]["size"] > 8000
    (read,) = ended["observed.use"]["inputs"]
    assert read["name"] == "observed/make/return_value"
    for dataset in (read, *outputs.values()):
        fields = {field["name"]: field["type"] for field in dataset["facets"]["schema"]["fields"]}
        assert fields.keys() == {"number", "text"}
        assert fields["number"] == "int64"

    counted = sums(receiver)
    assert counted["airflow.entrepot.xcom.write_bytes"] >= 2 * made["bytes"]
    assert counted["airflow.entrepot.xcom.read_bytes"] >= made["bytes"]
    assert counted["airflow.entrepot.xcom.inline"] == 2
    assert {"airflow.entrepot.xcom.write", "airflow.entrepot.xcom.read"} <= counted.keys()


def test_datasets_of_openlineage() -> None:
    extra = {"dataset": "etl/load/return_value", "bytes": 80, "rows": 10, "columns": [["x", "int64"]], "output": True}
    uri = "entrepot://prod/airflow%2Fetl%2Frun/etl/load/return_value"
    made = convert_asset_to_openlineage(SimpleNamespace(uri=uri, extra=extra), None)
    assert (made.namespace, made.name) == ("entrepot://prod", "etl/load/return_value")
    assert [(each.name, each.type) for each in made.facets["schema"].fields] == [("x", "int64")]
    assert made.outputFacets["outputStatistics"].rowCount == 10
    assert made.outputFacets["outputStatistics"].size == 80
    used = convert_asset_to_openlineage(SimpleNamespace(uri=uri, extra=extra | {"output": False}), None)
    assert used.facets["schema"].fields[0].name == "x"
    named = convert_asset_to_openlineage(SimpleNamespace(uri="entrepot://prod/-/orders", extra={}), None)
    assert named.name == "-/orders"
