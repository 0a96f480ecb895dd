"""An XCom backend as users write it first: each value is pickled to a file, and Airflow's database has its path."""

from __future__ import annotations

import os
import pickle
import uuid
from pathlib import Path
from typing import Any

from airflow.sdk.bases.xcom import BaseXCom

from benchmarks.table_handoff.runs import PICKLES_VARIABLE

PREFIX = "pickled:"


class PickleFileXCom(BaseXCom):
    """Values go to files of the folder that the environment names; numbers, texts and dicts stay in the database."""

    @staticmethod
    def serialize_value(value: Any, **names: Any) -> str:
        if value is None or isinstance(value, int | str | dict):
            return BaseXCom.serialize_value(value, **names)
        path = Path(os.environ[PICKLES_VARIABLE], uuid.uuid4().hex)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            pickle.dump(value, file, protocol=5)
        return BaseXCom.serialize_value(f"{PREFIX}{path}", **names)

    @staticmethod
    def deserialize_value(result: Any) -> Any:
        value = BaseXCom.deserialize_value(result)
        if not isinstance(value, str) or not value.startswith(PREFIX):
            return value
        with Path(value.removeprefix(PREFIX)).open("rb") as file:
            return pickle.load(file)  # a task of this benchmark wrote it
