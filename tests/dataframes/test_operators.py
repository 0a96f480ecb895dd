"""Every operator gives, over all ranks, the rows that Polars gives on one frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import polars as pl
import pytest
from entrepot.errors import InvalidArgument
from entrepot_frames.env import Env
from entrepot_frames.operators import merging
from entrepot_frames.operators.keys import key_type
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

FLOATS = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("inf"), -2.25])
INTEGERS = st.one_of(st.none(), st.integers(-3, 3))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "long enough to lie outside of the view", "ä"]))
BOUNDED = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
SIZES = st.sampled_from([1, 2, 4])
HOWS = ["inner", "left", "right", "full", "semi", "anti"]


@st.composite
def frames(draw: st.DrawFn, key: str = "k", extra: str = "v") -> pl.DataFrame:
    """A frame with keys of three types and a number, of up to 40 rows; often with a key that most rows have."""
    count = draw(st.integers(0, 40))
    rows = [
        {key: draw(INTEGERS), "t": draw(TEXTS), "f": draw(FLOATS), extra: draw(st.integers(-100, 100))}
        for _ in range(count)
    ]
    if draw(st.booleans()):
        for row in rows[: count * 9 // 10]:
            row[key] = 1
    return pl.DataFrame(rows, schema={key: pl.Int64, "t": pl.String, "f": pl.Float64, extra: pl.Int64})


def part(frame: pl.DataFrame, env: Env) -> pl.DataFrame:
    """A rank's part: in unequal portions, so that some ranks have no rows."""
    bounds = [min(frame.height, frame.height * rank * rank // (env.size * env.size)) for rank in range(env.size + 1)]
    return frame.slice(bounds[env.rank], bounds[env.rank + 1] - bounds[env.rank])


def merged(run_ranks: Any, size: int, left: pl.DataFrame, right: pl.DataFrame, **options: Any) -> list[pl.DataFrame]:
    """What each of ``size`` ranks has of a join."""

    def program(env: Env) -> pl.DataFrame:
        return env.from_local(part(left, env)).merge(env.from_local(part(right, env)), **options).to_polars()

    result: list[pl.DataFrame] = run_ranks(size, program)
    return result


def same_rows(result: list[pl.DataFrame], expected: pl.DataFrame) -> None:
    """All parts together have these rows, in any order."""
    assert_frame_equal(pl.concat(result), expected, check_row_order=False)


@BOUNDED
@given(
    left=frames(),
    right=frames(extra="w"),
    how=st.sampled_from(HOWS),
    size=SIZES,
    keys=st.sampled_from([["k"], ["t"], ["f"], ["k", "t"]]),
)
def test_merge(
    run_ranks: Any, left: pl.DataFrame, right: pl.DataFrame, how: merging.How, size: int, keys: list[str]
) -> None:
    result = run_ranks(
        size,
        lambda env: (
            env.from_local(part(left, env)).merge(env.from_local(part(right, env)), on=keys, how=how).to_polars()
        ),
    )
    same_rows(result, left.lazy().join(right.lazy(), on=keys, how=how).collect())  # not lazily, it loses NaN


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("heavy", ["left", "right", "both"])
def test_merge_with_keys_that_most_rows_have(run_ranks: Any, how: merging.How, heavy: str) -> None:
    def side(name: str, is_heavy: bool, rows: int) -> pl.DataFrame:
        keys = [7 if is_heavy and row % 10 else row % 500 for row in range(rows)]
        return pl.DataFrame({"k": [None if row % 97 == 0 else key for row, key in enumerate(keys)], name: range(rows)})

    left = side("v", heavy in ("left", "both"), 2000 if heavy != "both" else 300)
    right = side("w", heavy in ("right", "both"), 1800 if heavy != "both" else 280)
    result = run_ranks(
        4,
        lambda env: (
            env.from_local(part(left, env)).merge(env.from_local(part(right, env)), on="k", how=how).to_polars()
        ),
    )
    same_rows(result, left.join(right, on="k", how=how))


def test_the_rows_of_a_heavy_key_are_spread(run_ranks: Any) -> None:
    left = pl.DataFrame({"k": [1] * 9000 + list(range(2, 1002)), "v": range(10_000)})
    right = pl.DataFrame({"k": list(range(1, 10_001)), "w": range(10_000)})

    def program(env: Env) -> int:
        own = left.gather_every(env.size, env.rank)
        return env.from_local(own).merge(env.from_local(part(right, env)), on="k").to_polars().height

    heights = run_ranks(4, program)
    assert sum(heights) == 10_000
    assert max(heights) < 4000


@pytest.mark.parametrize(
    ("how", "small"),
    [("inner", "left"), ("inner", "right"), ("left", "right"), ("right", "left"), ("anti", "right")],
)
def test_merge_with_a_small_side(run_ranks: Any, how: merging.How, small: str) -> None:
    large, tiny = pl.DataFrame({"k": range(4000), "v": range(4000)}), pl.DataFrame({"k": [3, 4, 9999], "w": [1, 2, 3]})
    left, right = (tiny, large) if small == "left" else (large, tiny)
    result = run_ranks(
        3,
        lambda env: (
            env.from_local(part(left, env)).merge(env.from_local(part(right, env)), on="k", how=how).to_polars()
        ),
    )
    same_rows(result, left.join(right, on="k", how=how))


def test_cross_join_and_other_key_names(run_ranks: Any) -> None:
    left, right = pl.DataFrame({"a": [1, 2, 3, 4]}), pl.DataFrame({"b": [2, 3, 5], "a": [7, 8, 9]})

    def program(env: Env) -> tuple[pl.DataFrame, pl.DataFrame]:
        first, second = env.from_local(part(left, env)), env.from_local(part(right, env))
        crossed = first.merge(second, how="cross", suffix="_2")
        return crossed.to_polars(), first.merge(second, left_on="a", right_on="b").to_polars()

    crossed, named = zip(*run_ranks(2, program), strict=True)
    same_rows(list(crossed), left.join(right, how="cross", suffix="_2"))
    same_rows(list(named), left.join(right, left_on="a", right_on="b"))


@pytest.mark.parametrize(
    ("left", "right"),
    [(pl.Int32, pl.Int64), (pl.UInt8, pl.Float64), (pl.Categorical, pl.String), (pl.Categorical, pl.Categorical)],
)
def test_merge_of_keys_of_different_types(run_ranks: Any, left: Any, right: Any) -> None:
    values = ["1", "2", "3"] if left == pl.Categorical else [1, 2, 3]

    def program(env: Env) -> list[Any]:
        # Each rank meets the categories in another order.
        own, other = values[env.rank :] + values[: env.rank], list(reversed(values[1:]))
        first = pl.DataFrame({"k": pl.Series(own).cast(left)})
        second = pl.DataFrame(
            {"k": pl.Series(other if env.rank == 0 else []).cast(right), "w": other if env.rank == 0 else []}
        )
        return env.from_local(first).merge(env.from_local(second.cast({"w": right})), on="k").to_polars()["k"].to_list()

    matched = [str(int(float(value))) for keys in run_ranks(3, program) for value in keys]
    assert sorted(matched) == ["2"] * 3 + ["3"] * 3


SPECS: dict[str, tuple[str, str]] = {
    "total": ("v", "sum"), "low": ("f", "min"), "high": ("t", "max"), "n": ("f", "count"), "all": ("v", "len"),
    "mean": ("v", "mean"), "std": ("v", "std"), "var": ("v", "var"), "first": ("v", "first"), "last": ("v", "last"),
}  # fmt: skip


def expected_groups(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Polars' own result."""
    v, f = pl.col("v"), pl.col("f")
    return frame.group_by(keys).agg(
        total=v.sum(), low=f.min(), high=pl.col("t").max(), n=f.count(), all=pl.len(), mean=v.mean(), std=v.std(),
        var=v.var(), first=v.first(), last=v.last(),
    )  # fmt: skip


@BOUNDED
@given(frame=frames(), size=SIZES, keys=st.sampled_from([["k"], ["f"], ["k", "t"]]), share=st.sampled_from([0.0, 1.0]))
def test_groupby(run_ranks: Any, frame: pl.DataFrame, size: int, keys: list[str], share: float) -> None:
    # With share 0, rows change ranks before they are aggregated, and with 1, after it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("entrepot_frames.operators.grouping.DISTINCT_SHARE", share)
        result = run_ranks(size, lambda env: env.from_local(part(frame, env)).groupby(keys).agg(**SPECS).to_polars())
    same_rows(result, expected_groups(frame, keys))


@BOUNDED
@given(frame=frames(), size=SIZES)
def test_groupby_of_functions_that_need_whole_groups(run_ranks: Any, frame: pl.DataFrame, size: int) -> None:
    def program(env: Env) -> pl.DataFrame:
        grouped = env.from_local(part(frame, env)).groupby("k")
        return grouped.agg({"v": ["median", "n_unique"]}, pl.col("f").sum().alias("sum")).to_polars()

    v = pl.col("v")
    expected = frame.group_by("k").agg(v_median=v.median(), v_n_unique=v.n_unique(), sum=pl.col("f").sum())
    same_rows(run_ranks(size, program), expected)


@BOUNDED
@given(
    frame=frames(),
    size=SIZES,
    by=st.sampled_from([["k"], ["f"], ["t", "k"], ["v", "f"]]),
    down=st.booleans(),
    last=st.booleans(),
)
def test_sort_values(run_ranks: Any, frame: pl.DataFrame, size: int, by: list[str], down: bool, last: bool) -> None:
    result = run_ranks(
        size,
        lambda env: env.from_local(part(frame, env)).sort_values(by, descending=down, nulls_last=last).to_polars(),
    )
    expected = frame.sort(by, descending=down, nulls_last=last)
    assert_frame_equal(pl.concat(result).select(by), expected.select(by))
    same_rows(result, frame)


def test_sorting_a_key_that_all_rows_have_spreads_them(run_ranks: Any) -> None:
    frame = pl.DataFrame({"k": [1] * 8000, "v": range(8000)})
    result = run_ranks(4, lambda env: env.from_local(part(frame, env)).sort_values("k").to_polars().height)
    assert sum(result) == 8000
    assert max(result) < 4000


@BOUNDED
@given(frame=frames(), size=SIZES, subset=st.sampled_from([None, ["k"], ["f", "t"]]))
def test_drop_duplicates_keeps_the_first(
    run_ranks: Any, frame: pl.DataFrame, size: int, subset: list[str] | None
) -> None:
    result = run_ranks(size, lambda env: env.from_local(part(frame, env)).drop_duplicates(subset).to_polars())
    same_rows(result, frame.unique(subset, keep="first", maintain_order=True))


@BOUNDED
@given(frame=frames(), size=SIZES, n=st.integers(0, 50))
def test_what_ranks_do_alone_and_what_keeps_the_order(run_ranks: Any, frame: pl.DataFrame, size: int, n: int) -> None:
    def program(env: Env) -> list[pl.DataFrame]:
        rows = env.from_local(part(frame, env))
        changed = rows.filter(pl.col("v") > 0).with_columns(w=pl.col("v") * 2).rename({"t": "text"}).drop("f")
        halves = rows.filter(pl.col("v") <= 0).concat(rows.filter(pl.col("v") > 0))
        return [rows.repartition().to_polars(), rows.head(n).to_polars(), changed.to_polars(), halves.to_polars()]

    even, head, changed, halves = (list(parts) for parts in zip(*run_ranks(size, program), strict=True))
    assert_frame_equal(pl.concat(even), frame)
    assert max(part.height for part in even) - min(part.height for part in even) <= 1
    assert_frame_equal(pl.concat(head), frame.head(n))
    expected = frame.filter(pl.col("v") > 0).with_columns(w=pl.col("v") * 2).rename({"t": "text"}).drop("f")
    assert_frame_equal(pl.concat(changed), expected)
    same_rows(halves, frame)


def test_rows_that_are_together_are_not_exchanged_again(run_ranks: Any) -> None:
    frame = pl.DataFrame({"k": [row % 50 for row in range(1000)], "v": range(1000)})

    def program(env: Env) -> tuple[int, int, int, pl.DataFrame]:
        rows = env.from_local(part(frame, env)).repartition("k")
        rows.to_polars()
        first = env.communicator.phase
        kept = rows.filter(pl.col("v") > 10).with_columns(v=pl.col("v") + 1).select("k", "v").rename({"k": "key"})
        grouped = kept.groupby("key").agg(total=("v", "sum")).to_polars()
        second = env.communicator.phase
        kept.with_columns(key=pl.col("key") % 7).groupby("key").agg(total=("v", "sum")).to_polars()
        third = env.communicator.phase
        return first == second, second == third, 0, grouped

    results = run_ranks(3, program)
    assert [(same, changed) for same, changed, _, _ in results] == [(True, False)] * 3
    expected = frame.filter(pl.col("v") > 10).group_by(key="k").agg(total=(pl.col("v") + 1).sum())
    same_rows([grouped for _, _, _, grouped in results], expected)


def test_bad_arguments_say_what_is_wrong(run_ranks: Any) -> None:
    def program(env: Env) -> None:
        rows = env.from_local({"k": [1], "v": [2]})
        cases: list[tuple[Callable[[], object], str]] = [
            (lambda: rows.merge(rows), "at least one"),
            (lambda: rows.merge(rows, on="k", how=cast("Any", "outer")), "outer"),
            (lambda: rows.merge(rows, on="k", left_on="k"), "either on="),
            (lambda: rows.merge(rows, how="cross", on="k"), "no keys"),
            (lambda: rows.merge(rows, on="nope").to_polars(), "'nope'"),
            (lambda: rows.groupby("nope").agg(n=("v", "sum")).to_polars(), "'nope'"),
            (lambda: rows.groupby("k").agg(n=("v", "mode")).to_polars(), "'mode'"),
            (lambda: rows.groupby("k").agg(), "nothing to compute"),
            (lambda: rows.sort_values("nope").to_polars(), "'nope'"),
            (lambda: rows.sort_values(["k", "v"], descending=[True]), "2 key columns and 1"),
            (lambda: rows.drop_duplicates("nope").to_polars(), "'nope'"),
            (lambda: env.from_local(3).to_polars(), "int"),
        ]
        for make, message in cases:
            with pytest.raises(InvalidArgument, match=message):
                make()

    run_ranks(1, program)


def test_ranks_with_other_columns_are_refused(run_ranks: Any) -> None:
    def program(env: Env) -> None:
        rows = env.from_local({"k": [1], "v" if env.rank else "w": [2]})
        with pytest.raises(InvalidArgument, match="same"):
            rows.drop_duplicates().to_polars()

    run_ranks(2, program)


def test_a_rank_whose_column_has_only_nulls_takes_the_others_type(run_ranks: Any) -> None:
    def program(env: Env) -> pl.DataFrame:
        return (
            env.from_local({"k": [1, 2], "v": [None, None] if env.rank else ["a", "b"]}).drop_duplicates().to_polars()
        )

    assert pl.concat(run_ranks(2, program)).schema == {"k": pl.Int64, "v": pl.String}


def test_nested_columns_cannot_be_keys() -> None:
    with pytest.raises(TypeError, match="List"):
        key_type([pl.List(pl.Int64)], "merge")
    with pytest.raises(InvalidArgument, match="String"):
        key_type([pl.Int64(), pl.String()], "merge")
