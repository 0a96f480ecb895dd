"""What happens to the values of a run: the decision, from what the database says about the run.

run is not in the database --------------------------------------------> removed (if its DAG is this installation's)
run has not ended -----------------------------------------------------> kept
run has ended --no rule--> kept; its session's time to live decides
              --one of the newest of its DAG (keep_runs)--------------> kept
              --another run needs them--------------------------------> kept
              --the rule's time has not passed------------------------> kept
              --it has passed-----------------------------------------> removed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from entrepot.phrases import duration

from entrepot_airflow.lifetime.rules import LifetimeRules

DELETED = "its DAG run was deleted"
SUCCEEDED = "its DAG run succeeded"
ENDED = ("success", "failed")

Run = tuple[str, str]  # DAG and run ID


@dataclass(frozen=True)
class RunRecord:
    """A run, as the database has it.

    Attributes:
        state: its state.
        ended_for: seconds since it ended, if it has.
        clear_number: how often it was cleared.
    """

    state: str
    ended_for: float
    clear_number: int


@dataclass(frozen=True)
class Decision:
    """What happens to the values of a run.

    Attributes:
        remove: whether they are no longer needed.
        why: the reason, for people.
    """

    remove: bool
    why: str


def decide(
    runs: Iterable[Run],
    records: Mapping[Run, RunRecord],
    rules: LifetimeRules,
    *,
    known_dags: Set[str] | None,
    newest: Set[Run],
    needed: Mapping[Run, str],
) -> dict[Run, Decision]:
    """Decide for each run.

    Args:
        runs: the runs whose values a store has.
        records: those of them that the database has.
        rules: the rules.
        known_dags: the DAGs that the database has; a run of another one may be another installation's. None: all runs
            are this installation's.
        newest: the newest ended runs of each DAG, as many as the rules keep.
        needed: runs whose values another run needs, with the reason.
    """
    decisions: dict[Run, Decision] = {}
    for run in runs:
        record = records.get(run)
        if record is None:
            ours = known_dags is None or run[0] in known_dags
            decisions[run] = Decision(
                ours, DELETED if ours else f"the database does not know the DAG {run[0]!r}: maybe another installation"
            )
        elif record.state not in ENDED:
            decisions[run] = Decision(False, f"its DAG run is {record.state}")
        elif (limit := rules.limit(record.state)) is None:
            decisions[run] = Decision(False, f"its DAG run is {record.state}, and no rule applies")
        elif run in newest:
            decisions[run] = Decision(
                False, f"one of the newest {rules.keep_runs} of its DAG that ended like this (keep_runs)"
            )
        elif run in needed:
            decisions[run] = Decision(False, needed[run])
        else:
            decisions[run] = _by_age(record.state, record.ended_for, *limit)
    return decisions


def _by_age(state: str, ended_for: float, limit: float, name: str) -> Decision:
    if limit == 0 and state == "success":
        return Decision(True, SUCCEEDED)
    ended = f"its DAG run ended ({state}) {duration(int(ended_for))} ago"
    return Decision(ended_for >= limit, f"{ended}, and {name} is {duration(int(limit))}")
