"""What the page shows of a task instance: its XComs with previews of their values, and the tasks that read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from entrepot.errors import InvalidReference, VersionMismatch
from entrepot_io.preview import Preview, preview_of
from entrepot_io.reference import Reference, is_reference

from entrepot_airflow.compat.api_server import downstream_tasks, xcoms_of_instance
from entrepot_airflow.compat.database import database_session, serialized_task
from entrepot_airflow.compat.task_instances import instance_states
from entrepot_airflow.configuration import current_settings

MAX_XCOMS = 20  # that are shown; one instance rarely has more than a few
HIDDEN_PREFIXES = ("_link_", "entrepot-")  # of keys under which Airflow's links and this package keep things


@dataclass(frozen=True)
class ShownXCom:
    """An XCom on the page.

    Attributes:
        key: its key.
        preview: of the value; None: Airflow's database has the value itself, or the reference is damaged.
        checkpoint: where the value is saved as well; empty: nowhere, as far as its reference says.
        problem: why there is no preview; empty: the value is in the database.
    """

    key: str
    preview: Preview | None
    checkpoint: str = ""
    problem: str = ""


@dataclass(frozen=True)
class PageContents:
    """What the page shows.

    Attributes:
        dag_id, run_id, task_id, map_index: the task instance.
        xcoms: those that are shown.
        more: how many are not, at least.
        readers: the tasks directly downstream, each with the states of its instances and their number.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    xcoms: list[ShownXCom]
    more: int
    readers: dict[str, Mapping[str, int]]


def collect(dag_id: str, run_id: str, task_id: str, map_index: int) -> PageContents:
    """Collect what the page shows of a task instance.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    with database_session(own=True) as database:
        rows = xcoms_of_instance(dag_id, run_id, task_id, map_index, database, limit=10 * MAX_XCOMS)
        task = serialized_task(dag_id, task_id, run_id, database)
        downstream = [] if task is None else downstream_tasks(task)
        states: dict[str, Counter[str]] = {name: Counter() for name in downstream}
        if downstream:
            for (name, _), state in instance_states(dag_id, run_id, downstream, database):
                states[name][str(state or "none")] += 1
    shown = [(key, value) for key, value in rows if not key.startswith(HIDDEN_PREFIXES)]
    address = current_settings().address
    xcoms = [_show(key, value, address) for key, value in shown[:MAX_XCOMS]]
    return PageContents(dag_id, run_id, task_id, map_index, xcoms, max(0, len(shown) - MAX_XCOMS), {**states})


def _show(key: str, value: Any, address: str | None) -> ShownXCom:
    if not is_reference(value):
        return ShownXCom(key, None)
    try:
        reference = Reference.parse(value)
    except (InvalidReference, VersionMismatch) as error:
        return ShownXCom(key, None, problem=str(error))
    return ShownXCom(key, preview_of(reference, address=address), str(value.get("checkpoint") or ""))
