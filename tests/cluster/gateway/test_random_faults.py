"""Three hosts whose gateways, stores, links and directory fail at random: what must exist is read, and nothing else.

``make soak`` runs it for ENTREPOT_SOAK_SECONDS (600 by default), ``make test-exhaustive`` for 25 seconds. The report is
written to ``build/soak``; ENTREPOT_SOAK_SEED repeats a run's choices.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "faults"))
sys.path.insert(0, str(Path(__file__).parents[1] / "network"))
sys.path.insert(0, str(Path(__file__).parents[1] / "directory/servers"))
sys.path.insert(0, str(Path(__file__).parents[2] / "soak"))

from entrepot.ids import ObjectID
from entrepot_io.reference import Reference
from random_faults.content import HEAD_BYTES, WrongBytes, content, number_of
from random_faults.disturbances import Disturbances
from random_faults.model import Model
from random_faults.run import run

SECONDS = float(os.environ.get("ENTREPOT_SOAK_SECONDS", "25"))
SEED = int(os.environ.get("ENTREPOT_SOAK_SEED", str(int(time.time()))))
REPORTS = Path(__file__).parents[3] / "build" / "soak"


@pytest.mark.exhaustive
@pytest.mark.timeout(3 * SECONDS + 900)
def test_nothing_is_lost_or_mistaken_whatever_fails() -> None:
    print(f"\nENTREPOT_SOAK_SEED={SEED} ENTREPOT_SOAK_SECONDS={SECONDS:g}, faults in a cluster")
    folder = Path(tempfile.mkdtemp(prefix="rf-"))
    try:
        report = run(folder, SECONDS, SEED)
        print(report.write(REPORTS))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert report.broken == [], f"seed {SEED}"
    assert report.calms > 1
    assert report.certain_reads > 0


def _reference(number: int, instance: str = "i") -> Reference:
    return Reference("default", "", ObjectID(bytes(20)), number, instance, "host", "type", 100, None, "key")


def test_the_model_knows_what_may_be_lost() -> None:
    model = Model()
    first = model.begin_put("a", "key")
    model.end_put("a", first, _reference(first))
    (life,) = model.lives(certain=True)
    assert model.local("a", "key")[0] == first
    model.begin_move(first, "a", "b")
    assert model.knowledge_of(life)[:2] == (True, frozenset({"a", "b"}))  # at one of them
    assert model.local("a", "key")[0] is None
    model.end_move(first, "b")
    assert model.knowledge_of(life)[:2] == (True, frozenset({"b"}))
    second = model.begin_put("a", "key")  # where it is not any more
    assert life.is_certain
    model.end_put("a", second, _reference(second))
    model.begin_delete("b", "key")
    assert [each.number for each in model.lives(certain=True)] == [second]
    model.store_dies("a", "i")
    assert model.lives(certain=True) == []
    third = model.begin_put("a", "key")
    model.end_put("a", third, _reference(third))  # it was sealed in the store that was just killed
    assert model.lives(certain=True) == []
    assert (model.key_of(third), model.key_of(third + 1)) == ("key", None)
    model.forget("key")
    assert model.lives() == []


def test_the_model_lets_one_worker_at_a_time_change_a_key() -> None:
    model = Model()
    with model.changing("key") as first, model.changing("key") as second, model.changing("other") as third:
        assert (first, second, third) == (True, False, True)
    with model.changing("key") as again:
        assert again


def test_each_byte_of_a_value_is_checked() -> None:
    value = content(7, 5000)
    assert number_of(value) == 7
    for position in (0, 8, HEAD_BYTES, 4999):
        damaged = value.copy()
        damaged[position] ^= 1
        with pytest.raises(WrongBytes):
            number_of(damaged)
    with pytest.raises(WrongBytes):
        number_of(value[:-1])
    with pytest.raises(WrongBytes):
        number_of(np.zeros(3))


def test_what_was_disturbed_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("random_faults.disturbances.time", SimpleNamespace(monotonic=lambda: now))
    disturbances = Disturbances()
    assert disturbances.is_quiet(["a", "b"], now)
    span = disturbances.begin("a", is_store=False)
    assert not disturbances.is_quiet(["a", "b"], now)
    assert disturbances.is_quiet(["b"], now)
    assert disturbances.is_store_quiet("a", now)
    disturbances.end(span)
    assert not disturbances.is_quiet(["a"], now + 1)
    assert disturbances.is_quiet(["a"], now + 60)
    disturbances.begin("directory", is_store=False)
    assert not disturbances.is_quiet(["b"], now + 60)
