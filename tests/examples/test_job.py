"""The job's functions, on a few thousand flights."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from examples.flights import job

ROWS = 3000


@pytest.fixture(scope="module")
def tables() -> job.Tables:
    return job.load(1, ROWS)


@pytest.fixture(scope="module")
def joined(tables: job.Tables) -> pd.DataFrame:
    return job.join(tables)


@pytest.fixture(scope="module")
def featured(joined: pd.DataFrame) -> pd.DataFrame:
    return job.features(joined)


@pytest.fixture(scope="module")
def model(featured: pd.DataFrame) -> job.DelayModel:
    return job.train(featured)


def run(tables: job.Tables) -> job.Report:
    joined = job.join(tables)
    featured = job.features(joined)
    return job.report(joined, job.score(job.train(featured), featured))


def test_join_keeps_every_flight_once(tables: job.Tables, joined: pd.DataFrame) -> None:
    assert joined["flight_id"].tolist() == list(range(ROWS))
    assert set(tables["flights"].columns) < set(joined.columns)


def test_join_finds_the_right_partners(tables: job.Tables, joined: pd.DataFrame) -> None:
    row = joined[joined["tailnum"] == "N14228"].iloc[0]
    plane = tables["planes"].set_index("tailnum").loc["N14228"]
    airport = tables["airports"].set_index("faa").loc[row["dest"]]
    weather = tables["weather"]
    hour = weather[(weather["origin"] == row["origin"]) & (weather["time_hour"] == row["time_hour"])].iloc[0]
    assert row["airline"] == "United Air Lines Inc."
    assert row["plane_year"] == plane["year"]
    assert row["manufacturer"] == plane["manufacturer"]
    assert row["dest_name"] == airport["name"]
    assert row["temp"] == hour["temp"]


def test_features_are_numbers_of_the_flights_that_arrived(joined: pd.DataFrame, featured: pd.DataFrame) -> None:
    assert len(featured) == int(joined["arr_delay"].notna().sum()) < ROWS
    assert all(np.issubdtype(kind, np.number) for kind in featured.dtypes)
    assert featured[job.TARGET].notna().all()
    assert "dep_delay" not in featured  # the model predicts before departure


@pytest.mark.slow
def test_model_is_scored_on_what_it_has_not_seen(model: job.DelayModel, featured: pd.DataFrame) -> None:
    scored = job.score(model, featured)
    assert model.rows + len(scored) == len(featured)
    assert (scored["flight_id"] % 4 != 0).all()
    assert np.allclose(scored["error"], scored["predicted"] - scored["actual"])
    # The model is better than predicting the mean.
    assert scored["error"].abs().mean() < (scored["actual"] - scored["actual"].mean()).abs().mean()


@pytest.mark.slow
def test_job_is_deterministic(tables: job.Tables) -> None:
    first, second = run(tables), run(job.load(1, ROWS))
    assert first == second
    assert first["flights"] == ROWS
    assert first["scored"] > 0


@pytest.mark.slow
def test_no_function_writes_to_its_arguments(tables: job.Tables) -> None:
    # Tables as Entrepot returns them: with read-only NumPy blocks.
    frozen = {name: table.copy() for name, table in tables.items()}
    before = {name: job.checksum(table) for name, table in frozen.items()}
    for table in frozen.values():
        _freeze(table)
    joined = _freeze(job.join(frozen))
    featured = _freeze(job.features(joined))
    model = job.train(featured)
    scored = _freeze(job.score(model, featured))
    assert job.report(joined, scored) == run(tables)
    assert {name: job.checksum(table) for name, table in frozen.items()} == before


def _freeze(table: pd.DataFrame) -> pd.DataFrame:
    for block in table._mgr.blocks:
        if isinstance(block.values, np.ndarray):
            block.values.flags.writeable = False
    return table


def test_checksum_tells_values_and_order(joined: pd.DataFrame) -> None:
    table = joined[["flight_id", "carrier", "dest_alt"]]
    changed = table.copy()
    changed.loc[7, "dest_alt"] = 1.0
    assert job.checksum(table) == job.checksum(table.copy())
    assert job.checksum(table) != job.checksum(changed)
    assert job.checksum(table) != job.checksum(table.iloc[::-1])


@pytest.mark.slow
def test_model_survives_json_as_airflow_needs_it(model: job.DelayModel, featured: pd.DataFrame) -> None:
    import json

    again = job.DelayModel.deserialize(json.loads(json.dumps(model.serialize())), 1)
    assert job.score(again, featured).equals(job.score(model, featured))
    with pytest.raises(TypeError, match="version 2"):
        job.DelayModel.deserialize(model.serialize(), 2)
