"""The job: six pure functions from the raw tables to a report, independent of orchestrator and transport.

    load -> join -> features -> train -> score -> report
              |        +------------------^         ^
              +-------------------------------------+

No function modifies its arguments, so they may be read-only views of shared memory. Everything is deterministic: the
same scale always gives the same report.
"""

from __future__ import annotations

import base64
import hashlib
import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from examples.flights.data import load_tables

Tables = dict[str, pd.DataFrame]
Report = dict[str, Any]

TARGET = "arr_delay"
TRAIN_ROWS = 120_000  # upper limit; the model does not need more, and the demo is about transports, not boosting
_TRAIN_SHARE = 4  # one flight of four is for training; the others are scored
_CATEGORIES = ("carrier", "origin", "dest", "manufacturer", "engine")
_NUMBERS = (
    "month",
    "day",
    "hour",
    "minute",
    "distance",
    "seats",
    "plane_year",
    "dest_lat",
    "dest_lon",
    "dest_alt",
    "temp",
    "dewp",
    "humid",
    "wind_dir",
    "wind_speed",
    "precip",
    "pressure",
    "visib",
)


@dataclass
class DelayModel:
    """A fitted model and what it was fitted on.

    Airflow's own transports accept an object of a user-defined class only if it has ``serialize`` and ``deserialize``;
    nothing else calls them.

    Attributes:
        regressor: the fitted scikit-learn estimator.
        columns: its features, in order.
        rows: number of training rows.
    """

    regressor: Any
    columns: list[str]
    rows: int

    __version__: ClassVar[int] = 1

    def serialize(self) -> dict[str, Any]:
        """The model in a JSON-serializable form."""
        pickled = base64.b64encode(pickle.dumps(self.regressor)).decode("ascii")
        return {"regressor": pickled, "columns": self.columns, "rows": self.rows}

    @staticmethod
    def deserialize(data: dict[str, Any], version: int) -> DelayModel:
        """Restore the model, in a process of the same run."""
        if version > DelayModel.__version__:
            raise TypeError(
                f"model version {version} is newer than this code, which reads up to {DelayModel.__version__}"
            )
        # Written by the previous task of the same run; Airflow's own transports have no safer way for an estimator.
        regressor = pickle.loads(base64.b64decode(data["regressor"]))
        return DelayModel(regressor, list(data["columns"]), int(data["rows"]))


def load(scale: int, rows: int | None = None) -> Tables:
    """The five raw tables; see :func:`examples.flights.data.load_tables`."""
    return load_tables(scale, rows)


def join(tables: Tables) -> pd.DataFrame:
    """Every flight with its airline, plane, destination and the weather at its origin in that hour."""
    airlines = tables["airlines"].rename(columns={"name": "airline"})
    planes = tables["planes"].drop(columns="speed").rename(columns={"year": "plane_year"})
    airports = tables["airports"][["faa", "name", "lat", "lon", "alt"]].rename(
        columns={"faa": "dest", "name": "dest_name", "lat": "dest_lat", "lon": "dest_lon", "alt": "dest_alt"}
    )
    weather = tables["weather"].drop(columns=["year", "month", "day", "hour"])
    joined = tables["flights"]
    for other, key in (
        (airlines, ["carrier"]),
        (planes, ["tailnum"]),
        (airports, ["dest"]),
        (weather, ["origin", "time_hour"]),
    ):
        joined = joined.merge(other, how="left", on=key, validate="many_to_one")
    return joined


def features(joined: pd.DataFrame) -> pd.DataFrame:
    """Features of each flight that arrived: numbers only, and the delay to predict."""
    arrived = joined[joined[TARGET].notna()]
    columns: dict[str, Any] = {"flight_id": arrived["flight_id"].to_numpy()}
    for name in _NUMBERS:
        columns[name] = arrived[name].to_numpy(dtype=np.float64, na_value=np.nan)
    for name in _CATEGORIES:
        # Codes follow the sorted values, so they do not depend on row order.
        columns[name] = pd.Categorical(arrived[name]).codes.astype(np.float64)
    departure = arrived["hour"].to_numpy() + arrived["minute"].to_numpy() / 60.0
    columns["departure_sin"] = np.sin(departure * (2 * np.pi / 24))
    columns["departure_cos"] = np.cos(departure * (2 * np.pi / 24))
    columns["weekday"] = arrived["time_hour"].dt.day_of_week.to_numpy().astype(np.float64)
    columns[TARGET] = arrived[TARGET].to_numpy(dtype=np.float64)
    return pd.DataFrame(columns)


def train(featured: pd.DataFrame) -> DelayModel:
    """Train a model of the delay on a quarter of the flights."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    training = featured[_is_training(featured)].iloc[:TRAIN_ROWS]
    columns = [name for name in featured.columns if name not in ("flight_id", TARGET)]
    early_stopping: Any = False  # scikit-learn's annotation says str
    regressor = HistGradientBoostingRegressor(
        max_iter=20, max_leaf_nodes=31, early_stopping=early_stopping, random_state=13
    )
    regressor.fit(training[columns].to_numpy(), training[TARGET].to_numpy())
    return DelayModel(regressor, columns, len(training))


def score(model: DelayModel, featured: pd.DataFrame) -> pd.DataFrame:
    """Predicted and actual delay, in minutes, of every flight not used for training."""
    remaining = featured[~_is_training(featured)]
    predicted = model.regressor.predict(remaining[model.columns].to_numpy())
    return pd.DataFrame(
        {
            "flight_id": remaining["flight_id"].to_numpy(),
            "actual": remaining[TARGET].to_numpy(),
            "predicted": predicted,
            "error": predicted - remaining[TARGET].to_numpy(),
        }
    )


def report(joined: pd.DataFrame, scored: pd.DataFrame) -> Report:
    """The answer: amount of data, quality of the model, the airlines it misjudges most, and checksums."""
    airline = joined[["flight_id", "airline"]].merge(scored, on="flight_id", validate="one_to_one")
    by_airline = airline.groupby("airline")["error"].apply(lambda errors: float(errors.abs().mean()))
    worst = by_airline.sort_values(ascending=False, kind="stable").head(3)
    baseline = scored["actual"] - scored["actual"].mean()
    return {
        "flights": len(joined),
        "columns": len(joined.columns),
        "scored": len(scored),
        "mean_absolute_error": round(float(scored["error"].abs().mean()), 4),
        "r2": round(1 - float((scored["error"] ** 2).sum()) / float((baseline**2).sum()), 4),
        "hardest_airlines": {str(name): round(error, 3) for name, error in worst.items()},
        "joined_checksum": checksum(joined[["flight_id", "carrier", "tailnum", "time_hour", "dest_alt", "temp"]]),
        "scored_checksum": checksum(scored.round({"predicted": 4, "error": 4})),
    }


def checksum(table: pd.DataFrame) -> str:
    """Digest (16 hexadecimal digits) of the table's values in row order."""
    rows = pd.util.hash_pandas_object(table, index=False).to_numpy()
    return hashlib.blake2b(np.ascontiguousarray(rows).tobytes(), digest_size=8).hexdigest()


def _is_training(featured: pd.DataFrame) -> pd.Series[bool]:
    return featured["flight_id"] % _TRAIN_SHARE == 0
