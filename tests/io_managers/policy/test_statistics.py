"""Statistics, and the decisions that ``auto`` derives from them."""

from __future__ import annotations

import random

import entrepot
import pytest
from entrepot import raw_objects
from entrepot_policy.checkpoints.checkpoint_cost import CostEstimate, chance_of_loss, cheaper_to_recompute, loss_rate
from entrepot_policy.rules.match_target import Task
from entrepot_policy.state import records, statistics
from entrepot_policy.state.statistics import SESSION, Statistics
from hypothesis import given
from hypothesis import strategies as st

positive = st.floats(0.001, 1e5)


def task(name: str = "t", run: str = "r") -> Task:
    return Task("kedro", "p", run, name)


@given(recompute=positive, write=positive, load=positive, chance=st.floats(0, 1))
def test_a_checkpoint_pays_when_it_costs_less_on_average(
    recompute: float, write: float, load: float, chance: float
) -> None:
    pays = CostEstimate(recompute, write, load, chance, 1.0).pays
    assert pays == (chance * (recompute - load) > write) or abs(chance * (recompute - load) - write) < 1e-6 * recompute
    if pays:
        assert CostEstimate(2 * recompute, write, load, chance, 1.0).pays, "what takes longer is rather saved"
        assert CostEstimate(recompute, write / 2, load, chance, 1.0).pays


def test_the_formula_is_what_happens() -> None:
    """Simulated losses cost what the estimate predicts."""
    chance = random.Random(7)
    rate, lifetime, recompute, write, load = 1 / 5000, 3000.0, 100.0, 7.0, 2.0
    p = chance_of_loss(rate, lifetime)
    lost = sum(chance.expovariate(rate) < lifetime for _ in range(200_000)) / 200_000
    assert lost == pytest.approx(p, rel=0.02)
    estimate = CostEstimate(recompute, write, load, p, lifetime)
    assert estimate.without_checkpoint == pytest.approx(lost * recompute, rel=0.02)
    assert estimate.with_checkpoint == pytest.approx(write + lost * load, rel=0.02)


def test_rates_come_from_what_was_seen() -> None:
    assert loss_rate(0, 0.0, 1.0) == pytest.approx(1 / 86400)
    assert loss_rate(10, 864_000.0, 1.0) == pytest.approx(1 / 86400)
    assert loss_rate(100, 86_400.0, 1.0) > 50 * loss_rate(0, 86_400.0, 1.0)
    assert chance_of_loss(0.0, 1e9) == 0.0
    assert cheaper_to_recompute(0.01, 1 << 30, 1e9, 1e9, 0.5)
    assert not cheaper_to_recompute(60.0, 1 << 20, 1e9, 1e9, 0.5)


def test_what_was_measured_is_there_for_the_next_process(store: entrepot.Store) -> None:
    first = Statistics(lambda: store)
    assert first.record_run_start(task()) == 1
    assert first.record_run_start(task()) == 1, "a retry is no run"
    first.record_run_end(task(), 10.0, 1000)
    assert first.record_run_start(task(run="r2")) == 2
    first.record_run_end(task(run="r2"), 20.0, 1000)
    first.record_failed_attempt(task())
    first.record_checkpoint_write("/t/{run}", 100 << 20, 1.0)
    first.record_checkpoint_write("/t/{run}", 10, 0.25)
    first.record_checkpoint_load("/t/{run}", 100 << 20, 0.5)
    first.record_loss("i1")
    first.record_loss("i1")
    second = Statistics(lambda: store)
    task_statistics = second.task(task(run="r3"))
    assert (task_statistics.runs, task_statistics.failures, task_statistics.nbytes) == (2, 1, 1000.0)
    assert task_statistics.seconds == pytest.approx(13.0)
    target = second.target("/t/{run}")
    assert (target.writes, target.write_rate, target.latency, target.read_rate) == (2, 100 << 20, 0.25, 200 << 20)
    assert second.losses().losses == 1


def test_they_are_bounded(store: entrepot.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_TASKS", 5)
    measured = Statistics(lambda: store)
    for number in range(12):
        measured.record_run_start(task(f"t{number}"))
    assert len(store.list("task/*", session=SESSION)) == 5
    assert measured.task(task("t11")).runs == 1
    assert measured.task(task("t0")).runs == 0


def test_damage_counts_as_never_measured(store: entrepot.Store) -> None:
    measured = Statistics(lambda: store)
    measured.record_run_start(task())
    (info,) = store.list("task/*", session=SESSION)
    for data in (b"?", records.encode({"runs": "many"}), records.encode({"runs": True, "seconds": []})):
        raw_objects.put_record(store.session(SESSION), info.id, data, name=info.names[0])
        assert measured.task(task()).runs in (0, True)
    assert measured.record_run_start(task()) >= 1
