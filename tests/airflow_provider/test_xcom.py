"""The XCom backend on its own: stored entries, values read back, damage and loss."""

from __future__ import annotations

import importlib
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from entrepot.errors import InvalidReference, ObjectLost, StoreFull, StoreUnavailable, VersionMismatch
from entrepot_airflow.get_provider_info import get_provider_info
from entrepot_io.connections import close_all, scope_store
from entrepot_io.reference import Reference

XCOM_KEY = {"key": "return_value", "task_id": "load", "dag_id": "etl", "run_id": "manual__1", "map_index": -1}


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    yield
    close_all()


@pytest.fixture
def backend(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    from entrepot_airflow import EntrepotXComBackend

    return EntrepotXComBackend


def database_entry(backend: Any, value: Any, **changes: Any) -> Any:
    """The entry in Airflow's database: the backend's result after a round trip through JSON."""
    return json.loads(json.dumps(backend.serialize_value(value, **(XCOM_KEY | changes))))


def read(backend: Any, entry: Any) -> Any:
    return backend.deserialize_value(SimpleNamespace(value=entry, key="return_value"))


class Model:
    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and np.array_equal(self.weights, other.weights)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x" * 10_000,
        (1, "two", None),
        {1: "int key"},
        {"entrepot": 1, "looks": "like a reference"},
        {"__classname__": "reserved by Airflow"},
        float("inf"),
        "long " * 2000,
        Model(np.arange(1000)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_round_trips_by_reference(backend: Any, value: Any) -> None:
    entry = database_entry(backend, value)
    assert Reference.parse(entry).key == "etl/load/return_value"
    loaded = read(backend, entry)
    assert type(loaded) is type(value)
    assert loaded == value


def test_frames_and_arrays(backend: Any) -> None:
    frame = pd.DataFrame({"x": np.arange(1000), "t": pd.date_range("2026-01-01", periods=1000, tz="UTC")})
    pd.testing.assert_frame_equal(read(backend, database_entry(backend, frame)), frame)
    array = np.arange(5000.0).reshape(50, 100)
    loaded = read(backend, database_entry(backend, array))
    assert np.array_equal(loaded, array)
    assert not loaded.flags.writeable


@pytest.mark.parametrize("value", [None, True, 3, "text", [1, 2], {"a": {"b": []}}], ids=repr)
def test_small_plain_values_stay_as_they_are(backend: Any, value: Any) -> None:
    entry = database_entry(backend, value)
    assert entry == value
    assert read(backend, entry) == value


@pytest.mark.parametrize(
    ("value", "size"), [(b"x" * 100, 100), (np.arange(10), 80), (pd.DataFrame({"a": np.arange(10)}), 80)]
)
def test_references_of_small_values_have_their_size(backend: Any, value: Any, size: int) -> None:
    reference = Reference.parse(database_entry(backend, value))
    assert size <= reference.nbytes < size + 200
    assert f" {reference.nbytes} B;" in str(reference)


def test_everything_by_reference_if_asked_for(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_INLINE_BELOW", "0")
    entry = database_entry(backend, 3)
    assert Reference.parse(entry).type == "int"
    assert read(backend, entry) == 3


@pytest.mark.parametrize("mode", ["on_write", "always"])
def test_values_may_be_changed_if_asked_for(backend: Any, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    entry = database_entry(backend, np.arange(1000))
    monkeypatch.setenv("ENTREPOT_COPY", mode)
    value = read(backend, entry)
    value[0] = 7
    assert read(backend, entry)[0] == 0


def test_a_retry_writes_the_same_object(backend: Any) -> None:
    first, second = (Reference.parse(database_entry(backend, np.full(1000, attempt))) for attempt in (1, 2))
    assert first.id == second.id
    assert first.generation != second.generation
    assert read(backend, second.to_dict())[0] == 2
    with pytest.raises(ObjectLost, match="was replaced by a later attempt"):
        read(backend, first.to_dict())


@pytest.mark.parametrize(
    "change", [{"key": "other"}, {"task_id": "other"}, {"dag_id": "other"}, {"run_id": "other"}, {"map_index": 0}]
)
def test_other_xcoms_are_other_objects(backend: Any, change: dict[str, Any]) -> None:
    first, second = (Reference.parse(database_entry(backend, b"x" * 5000, **overrides)) for overrides in ({}, change))
    assert first.id != second.id


def test_without_a_task(backend: Any) -> None:
    """User code may call the class directly; such values get random IDs and a session that expires by itself."""
    entries = [backend.serialize_value(b"x" * 5000) for _ in range(2)]
    references = [Reference.parse(entry) for entry in entries]
    assert references[0].id != references[1].id
    assert references[0].session == "airflow/detached"
    assert read(backend, entries[0]) == b"x" * 5000


def delete_object(reference: Reference) -> None:
    assert scope_store(None, reference.scope).delete(reference.id)


def test_a_lost_object_is_an_error(backend: Any) -> None:
    entry = database_entry(backend, np.arange(1000))
    delete_object(Reference.parse(entry))
    with pytest.raises(ObjectLost, match="is no longer in the store") as caught:
        read(backend, entry)
    assert "manual__1" in str(caught.value)


def test_a_reader_keeps_what_it_has(backend: Any) -> None:
    entry = database_entry(backend, np.arange(100_000))
    value = read(backend, entry)
    delete_object(Reference.parse(entry))
    database_entry(backend, np.zeros(100_000))
    assert int(value.sum()) == 100_000 * 99_999 // 2


EntryChange = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entry: entry.pop("id"), "no field 'id'"),
        (lambda entry: entry.update(id=entry["id"][:-1]), "'id' is"),
        (lambda entry: entry.update(id="0" * 40), "is damaged"),
        (lambda entry: entry.update(generation=None), "'generation' is None"),
        (lambda entry: entry.pop("entrepot"), "no field 'entrepot'"),
    ],
)
def test_a_damaged_reference_is_an_error(backend: Any, change: EntryChange, message: str) -> None:
    entry = database_entry(backend, np.arange(1000))
    change(entry)
    with pytest.raises(InvalidReference, match=message):
        read(backend, entry)


def test_a_reference_of_a_newer_version(backend: Any) -> None:
    with pytest.raises(VersionMismatch, match="upgrade entrepot here"):
        read(backend, database_entry(backend, np.arange(1000)) | {"entrepot": 2})


def test_a_reference_of_another_host_names_it(backend: Any) -> None:
    entry = database_entry(backend, np.arange(1000)) | {"instance": "ab" * 16, "host": "node-b"}
    with pytest.raises(ObjectLost, match="lives on host 'node-b'"):
        read(backend, entry)


def test_a_reference_of_a_former_store_of_this_host(backend: Any) -> None:
    entry = database_entry(backend, np.arange(1000))
    # A store that recovered another's spill files has the same generations.
    recovered_entry = entry | {"instance": "ab" * 16}
    assert len(read(backend, recovered_entry)) == 1000
    with pytest.raises(ObjectLost, match="ended or was killed, and this is a new one"):
        read(backend, recovered_entry | {"generation": entry["generation"] ^ 1})


def test_a_stopped_store_is_an_error(backend: Any, daemon: Any) -> None:
    entry = database_entry(backend, np.arange(1000))
    daemon.stop()
    close_all()
    with pytest.raises(StoreUnavailable):
        read(backend, entry)
    with pytest.raises(StoreUnavailable):
        database_entry(backend, np.arange(1000))
    assert database_entry(backend, 3) == 3  # values kept in the database need no store


def test_a_full_store_is_an_error_that_costs_no_other_value(
    new_daemon: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_ADDRESS", new_daemon("64MiB").address)
    from entrepot_airflow import EntrepotXComBackend

    entry = database_entry(EntrepotXComBackend, np.arange(1000))
    with pytest.raises(StoreFull):
        database_entry(EntrepotXComBackend, np.zeros(128 << 20, np.uint8), task_id="large")
    assert len(read(EntrepotXComBackend, entry)) == 1000
    assert len(read(EntrepotXComBackend, database_entry(EntrepotXComBackend, np.arange(2000), task_id="next"))) == 2000


def test_purge_drops_the_object(backend: Any) -> None:
    entry = database_entry(backend, np.arange(1000))
    backend.purge(SimpleNamespace(value=entry, key="return_value"))
    reference = Reference.parse(entry)
    assert not scope_store(None, reference.scope).exists(reference.id)
    backend.purge(SimpleNamespace(value=entry, key="return_value"))  # idempotent
    backend.purge(SimpleNamespace(value={"plain": 1}, key="return_value"))
    backend.purge(SimpleNamespace(value=None, key="return_value"))


def test_purge_by_an_old_reference_leaves_the_new_object(backend: Any) -> None:
    old = database_entry(backend, np.arange(1000))
    new = database_entry(backend, np.arange(2000))
    backend.purge(SimpleNamespace(value=old, key="return_value"))
    assert len(read(backend, new)) == 2000


def test_purge_never_keeps_a_task_from_running(backend: Any, daemon: Any, caplog: pytest.LogCaptureFixture) -> None:
    entry = database_entry(backend, np.arange(1000))
    backend.purge(SimpleNamespace(value=entry | {"instance": "ab" * 16, "host": "node-b"}, key="elsewhere"))
    assert len(read(backend, entry)) == 1000
    daemon.stop()
    close_all()
    with caplog.at_level(logging.WARNING):
        backend.purge(SimpleNamespace(value=entry | {"id": "?"}, key="damaged"))
        backend.purge(SimpleNamespace(value=entry, key="gone"))
    assert "'damaged'; it stays until its session ends" in caplog.text
    assert "'gone'; it stays until its session ends" in caplog.text


def test_the_default_scope_is_the_installation(backend: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENTREPOT_SCOPE", raising=False)
    scopes = []
    for home in ("one", "two"):
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / home))
        scopes.append(Reference.parse(database_entry(backend, b"x" * 5000)).scope)
    assert scopes[0].startswith("airflow-one-")
    assert scopes[0] != scopes[1]


def test_provider_metadata_fits_airflows_schema() -> None:
    import airflow

    jsonschema = importlib.import_module("jsonschema")  # has no type information
    schema = json.loads(Path(airflow.__file__).with_name("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


@pytest.mark.slow
def test_airflow_finds_the_provider_and_its_options(tmp_path: Path) -> None:
    code = (
        "from airflow.providers_manager import ProvidersManager\n"
        "from airflow.sdk.configuration import conf\n"
        "import json\n"
        "info = ProvidersManager().providers['entrepot']\n"
        "print('FOUND', json.dumps([info.data['name'], conf.get('entrepot', 'inline_below', fallback='none')]))\n"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert process.returncode == 0, process.stdout + process.stderr
    line = next(line for line in process.stdout.splitlines() if line.startswith("FOUND "))
    assert json.loads(line.removeprefix("FOUND ")) == ["Entrepot", "4096"]


def test_importing_the_package_imports_no_airflow() -> None:
    code = (
        "import sys, entrepot_airflow, entrepot_airflow.get_provider_info as p; p.get_provider_info()\n"
        "assert not {'airflow', 'numpy', 'pandas', 'pyarrow'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- multiple_outputs


def used_bytes() -> int:
    return int(scope_store(None, "tests").status()["used_bytes"])


@pytest.fixture
def begin_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    from entrepot_airflow import cluster_policy
    from entrepot_airflow.values import multiple_outputs

    monkeypatch.setenv("ENTREPOT_SCOPE", "tests")

    def begin(multiple: bool) -> None:
        cluster_policy.get_airflow_context_vars({"task": SimpleNamespace(multiple_outputs=multiple)})

    yield begin
    multiple_outputs.begin_task(False)


def test_multiple_outputs_are_stored_once(backend: Any, begin_task: Callable[[bool], None]) -> None:
    begin_task(True)
    whole: dict[str, Any] = {"frame": pd.DataFrame({"x": np.arange(1_000_000)}), "array": np.ones(500_000), "number": 7}
    before = used_bytes()
    for key, value in whole.items():  # as Airflow does
        database_entry(backend, value, key=key)
    entries = used_bytes() - before
    assert entries > 12_000_000
    entry = database_entry(backend, whole)
    assert used_bytes() - before < entries + 100_000
    loaded = read(backend, entry)
    assert list(loaded) == list(whole)
    pd.testing.assert_frame_equal(loaded["frame"], whole["frame"])
    assert loaded["array"].sum() == 500_000
    assert loaded["number"] == 7


def test_values_that_a_task_pushed_are_not_reused(backend: Any, begin_task: Callable[[bool], None]) -> None:
    begin_task(False)
    array = np.zeros(10_000)
    database_entry(backend, array, key="array")
    array[0] = 7
    assert read(backend, database_entry(backend, {"array": array}))["array"][0] == 7
    begin_task(True)  # the last push of a key wins, and that is Airflow's own
    database_entry(backend, array, key="array")
    array[0] = 8
    database_entry(backend, array, key="array")
    assert read(backend, database_entry(backend, {"array": array}))["array"][0] == 8


# --- writing to an input


def test_writing_to_an_input_logs_the_copy_setting(
    backend: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from entrepot_airflow import cluster_policy
    from entrepot_airflow.values import read_only_advice

    monkeypatch.setattr(read_only_advice, "_gave_read_only", False)
    callback_contexts: list[Any] = []
    task = SimpleNamespace(on_failure_callback=callback_contexts.append, on_retry_callback=None)
    for _ in range(2):
        cluster_policy.get_airflow_context_vars({"task": task})
    assert task.on_failure_callback == [callback_contexts.append, read_only_advice.explain]
    assert task.on_retry_callback == [read_only_advice.explain]
    read_only_advice.explain({"exception": ValueError("output array is read-only")})
    assert not caplog.records  # no input was read yet
    values = read(backend, database_entry(backend, np.arange(1000)))
    with pytest.raises(ValueError, match="read-only") as error:
        values[0] = 7
    read_only_advice.explain({"exception": error.value})
    (message,) = [record.getMessage() for record in caplog.records]
    assert 'copy="on_write"' in message
    assert "[entrepot] copy" in message
    read_only_advice.explain({"exception": ValueError("something else")})
    assert len(caplog.records) == 1


def test_what_airflow_reads_once_this_is_uninstalled(backend: Any) -> None:
    """Its own backend reads the rows: small plain values as they are, and references as dictionaries."""
    from airflow.sdk.bases.xcom import BaseXCom

    plain = {"rows": 3, "names": ["a", "b"]}
    assert BaseXCom.deserialize_value(SimpleNamespace(value=database_entry(backend, plain))) == plain
    row = database_entry(backend, np.arange(10_000))
    left = BaseXCom.deserialize_value(SimpleNamespace(value=row))
    assert left == row
    assert left["entrepot"] == 1
    assert len(json.dumps(row)) < 2048
