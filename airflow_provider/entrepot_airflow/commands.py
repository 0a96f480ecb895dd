"""Subcommands of the command line: airflow gc."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument
from entrepot.phrases import count_of

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers

    from entrepot_airflow.lifetime.rules import LifetimeRules
    from entrepot_airflow.reconciler import Verdict


def add_subcommands(subparsers: SubParsers) -> None:
    """Add this module's subcommands."""
    airflow = subparsers.add_parser("airflow", help="values of Airflow's DAG runs")
    actions = airflow.add_subparsers(dest="action", metavar="ACTION", required=True)
    gc = actions.add_parser(
        "gc", help="remove values that no DAG run needs any more; run it where Airflow's database can be reached"
    )
    gc.add_argument("--address", help="unix:///path of the store (default: that of [entrepot], as for tasks)")
    gc.add_argument("-n", "--dry-run", action="store_true", help="only show what would be removed and kept, and why")
    gc.add_argument("--json", action="store_true", help="print JSON")
    gc.set_defaults(run=run_gc)


@dataclass
class _Outcome:
    """Attributes: verdicts that were carried out, or would be; those that keep something; what could not be removed."""

    removed: list[Verdict]
    kept: list[Verdict]
    problems: list[str] = field(default_factory=list[str])


def run_gc(arguments: argparse.Namespace) -> int:
    """``entrepot airflow gc``; exit code 1 if something was not removed.

    Raises:
        InvalidArgument: Airflow is not installed here, its database cannot be read, or a rule is wrong.
        StoreUnavailable: the store does not answer.
    """
    if find_spec("airflow") is None:
        raise InvalidArgument("Airflow is not installed here: run this where it is, with the same AIRFLOW_HOME")
    logging.getLogger("alembic").setLevel(logging.WARNING)  # Airflow's database code logs every plugin through it
    from entrepot_airflow.lifetime.rules import configured_rules

    rules = configured_rules()
    outcome = _collect(arguments, rules)
    if arguments.json:
        _print_json(arguments.dry_run, outcome)
    else:
        _print(arguments.dry_run, outcome, rules)
    for problem in outcome.problems:
        print(f"entrepot: {problem}", file=sys.stderr)
    return 1 if outcome.problems else 0


def _collect(arguments: argparse.Namespace, rules: LifetimeRules) -> _Outcome:
    from entrepot._cli.common import connect_for_inspection
    from sqlalchemy.exc import SQLAlchemyError

    from entrepot_airflow import reconciler
    from entrepot_airflow.configuration import current_settings, default_scope

    settings = current_settings()
    scope = settings.scope or default_scope()
    with connect_for_inspection(arguments.address or settings.address) as store:
        try:
            verdicts = reconciler.find(store, scope, rules, only_known_dags=settings.scope is None)
            kept = [verdict for verdict in verdicts if not verdict.decision.remove]
            if arguments.dry_run:
                return _Outcome([verdict for verdict in verdicts if verdict.decision.remove], kept)
            removed, problems = reconciler.remove(store, scope, verdicts)
        except SQLAlchemyError as error:
            raise InvalidArgument(
                f"Airflow's database cannot be read, so nothing more was removed: {error} (set AIRFLOW_HOME and "
                "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN as for the scheduler)"
            ) from error
    return _Outcome(removed, kept, problems)


def _print(dry_run: bool, outcome: _Outcome, rules: LifetimeRules) -> None:
    from entrepot._cli.common import human_bytes, table

    rows = [
        [_name(verdict), human_bytes(verdict.nbytes), str(verdict.objects), action, verdict.decision.why]
        for verdicts, action in (
            (outcome.removed, "remove" if dry_run else "removed"),
            (outcome.kept if dry_run else [], "keep"),
        )
        for verdict in verdicts
    ]
    if rows:
        print(table(rows, ["run or XCom", "bytes", "objects", "", "why"]))
    if rules.empty:
        print(
            "no rules in [entrepot] (keep_after_success, keep_after_failure, keep_at_most): only deleted runs' values"
        )
    size = human_bytes(sum(verdict.nbytes for verdict in outcome.removed))
    print(f"{count_of(len(outcome.removed), 'item')} {'would be removed' if dry_run else 'removed'}, {size}")


def _print_json(dry_run: bool, outcome: _Outcome) -> None:
    print(
        json.dumps(
            {
                "dry_run": dry_run,
                "removed": [_to_json(verdict) for verdict in outcome.removed],
                "kept": [_to_json(verdict) for verdict in outcome.kept],
                "problems": outcome.problems,
            },
            indent=2,
        )
    )


def _to_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "session": verdict.session,
        "xcom": verdict.name or None,
        "why": verdict.decision.why,
        "nbytes": verdict.nbytes,
        "objects": verdict.objects,
    }


def _name(verdict: Verdict) -> str:
    return verdict.session if verdict.object is None else f"{verdict.session}: {verdict.name}"
