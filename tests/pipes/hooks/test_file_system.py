"""``db://`` for programs that open URLs through fsspec, without hooks."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
import pandas as pd
import pytest
from entrepot.errors import InvalidArgument

FRAME = pd.DataFrame({"a": [1, 2], "s": ["x", "y,z"]})
WATCHDOG_SECONDS = 100.0


def both(writes: Callable[[str], Any], reads: Callable[[str], Any]) -> Any:
    """What the reader returns, while another thread writes."""
    name = f"db://fs-{uuid.uuid4().hex[:12]}?query=q1"
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(writes, name)
        received = reads(name)
        writing.result(WATCHDOG_SECONDS)
    return received


def test_pandas() -> None:
    received = both(lambda name: FRAME.to_csv(name, index=False), pd.read_csv)
    pd.testing.assert_frame_equal(received, FRAME)
    lines = both(
        lambda name: FRAME.to_json(name, orient="records", lines=True), lambda name: pd.read_json(name, lines=True)
    )
    pd.testing.assert_frame_equal(lines, FRAME)


def test_file_objects_for_polars_and_pyarrow() -> None:
    import polars as pl
    import pyarrow as pa
    import pyarrow.csv as pacsv

    def write(name: str) -> None:
        with fsspec.open(name, "wb") as file:
            pacsv.write_csv(pa.Table.from_pandas(FRAME, preserve_index=False), file)

    def read(name: str) -> Any:
        with fsspec.open(name, "rb") as file:
            return pl.read_csv(file)

    assert both(write, read).to_dict(as_series=False) == FRAME.to_dict("list")


@pytest.mark.slow
def test_dask_writes_one_file() -> None:
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(FRAME, npartitions=1)
    received = both(lambda name: frame.to_csv(name, single_file=True, index=False), pd.read_csv)
    pd.testing.assert_frame_equal(received, FRAME)


@pytest.mark.slow
def test_dask_is_told_how_to_read_without_hooks() -> None:
    dd = pytest.importorskip("dask.dataframe")
    with pytest.raises(io.UnsupportedOperation, match=r"can be read once.*dd\.from_pandas"):
        dd.read_csv("db://never", blocksize=None)


def test_what_is_known_of_a_pipe() -> None:
    files = fsspec.filesystem("db")
    assert files.exists("db://x?workers=2")
    assert files.info("db://x?workers=2") == {"name": "x?workers=2", "type": "file", "size": None}
    assert files.ls("db://x", detail=False) == ["x"]
    assert files.glob("db://x?workers=2") == ["x?workers=2"]
    assert files.unstrip_protocol("x?query=q") == "db://x?query=q"
    with pytest.raises(InvalidArgument):
        files.info("db://x?workers=many")


@pytest.mark.parametrize("mode", ["ab", "r+b"])
def test_other_modes_are_refused(mode: str) -> None:
    with pytest.raises(io.UnsupportedOperation, match="to append or to change"):
        fsspec.filesystem("db").open("db://x", mode)


def test_size_and_times_are_refused() -> None:
    files = fsspec.filesystem("db")
    with pytest.raises(io.UnsupportedOperation, match="size"):
        files.size("db://x")
    with pytest.raises(io.UnsupportedOperation, match="created"):
        files.modified("db://x")
