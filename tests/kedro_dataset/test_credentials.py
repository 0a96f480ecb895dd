"""``credentials`` of a catalog entry reach the place where values are also written, and nothing else."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import s3fs
from entrepot import raw_objects
from entrepot.errors import InvalidArgument
from entrepot_io.connections import close_all
from entrepot_io.keys import kedro_key
from entrepot_kedro import EntrepotDataset, catalog_config
from kedro.io import DataCatalog, DatasetError

pytestmark = pytest.mark.usefixtures("in_scope_tests")
ENTRY = {"type": "entrepot_kedro.EntrepotDataset", "session": "kept", "credentials": "runs"}


def catalog(credentials: dict[str, Any]) -> DataCatalog:
    return DataCatalog.from_config(catalog_config({"orders": ENTRY}), credentials={"runs": credentials})


def test_values_are_written_and_restored_with_the_catalogs_credentials(bucket: dict[str, Any]) -> None:
    saved: Any = catalog(bucket)["orders"]
    saved.save(b"x" * 100_000)
    assert s3fs.S3FileSystem(**bucket).find("values/runs")
    store = saved.store()
    raw_objects.discard(store, store.derive(kedro_key("orders")))  # as if the store had lost it
    close_all()  # as in another process, which finds the session declared, without any options
    assert pickle.loads(pickle.dumps(catalog(bucket)["orders"])).load() == b"x" * 100_000


def test_without_them_the_place_cannot_be_reached(bucket: dict[str, Any]) -> None:
    plain = EntrepotDataset(name="orders", session="kept")
    with pytest.raises(DatasetError) as caught:
        plain.save(1)
    assert type(caught.value.__cause__).__module__ == "entrepot.errors"


def test_they_are_in_no_text(bucket: dict[str, Any]) -> None:
    dataset = catalog(bucket | {"secret": "do-not-tell"})["orders"]
    assert "do-not-tell" not in f"{dataset!r} {dataset}"
    with pytest.raises(InvalidArgument, match=r"must be a mapping of storage options.*not str") as caught:
        EntrepotDataset(name="x", credentials="do-not-tell")  # type: ignore[arg-type]
    assert "do-not-tell" not in str(caught.value)


def test_what_would_not_be_used_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENTREPOT_DURABLE", raising=False)
    with pytest.raises(DatasetError, match="there is none: set ENTREPOT_DURABLE") as caught:
        assert catalog({"key": "k"})["orders"]
    assert isinstance(caught.value.__cause__, InvalidArgument)
