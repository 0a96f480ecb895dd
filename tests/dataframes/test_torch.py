"""Frames as PyTorch tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from entrepot.errors import InvalidArgument
from entrepot_frames.env import Env

torch = pytest.importorskip("torch", reason="PyTorch is large: tested where it is installed")
NUMBERS = [pl.Float64, pl.Float32, pl.Int64, pl.Int32, pl.Int16, pl.Int8, pl.UInt64, pl.UInt32, pl.UInt16, pl.UInt8]


def test_columns_become_tensors_that_may_be_written(run_ranks: Callable[..., list[Any]]) -> None:
    def program(env: Env) -> dict[str, Any]:
        columns = {str(kind): pl.Series([env.rank, 5, 7], dtype=kind) for kind in NUMBERS}
        frame = env.from_local(pl.DataFrame(columns))
        tensors = frame.to_torch()
        tensors["Float64"][1] = -1.0
        assert frame.to_polars()["Float64"].to_list() == [env.rank, 5.0, 7.0]
        return tensors

    for rank, tensors in enumerate(run_ranks(2, program)):
        assert list(tensors) == [str(kind) for kind in NUMBERS]
        assert tensors["Float64"].tolist() == [rank, -1.0, 7.0]
        for kind in NUMBERS[1:]:
            assert tensors[str(kind)].dtype == getattr(torch, str(kind).lower())
            assert tensors[str(kind)].tolist() == [rank, 5, 7]


@pytest.mark.parametrize("values", [[1, None], ["a", "b"], [True, False]])
def test_what_has_no_tensor(run_ranks: Callable[..., list[Any]], values: list[Any]) -> None:
    def program(env: Env) -> None:
        with pytest.raises(InvalidArgument, match="has no tensor"):
            env.from_local({"n": values}).to_torch()

    run_ranks(1, program)
