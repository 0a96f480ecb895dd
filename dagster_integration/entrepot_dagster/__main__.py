"""``python -m entrepot_dagster``: does what the sensors do, for those who run jobs without Dagster's daemon.

python -m entrepot_dagster rerun RUN_ID      # or --last; DAGSTER_HOME selects the instance
python -m entrepot_dagster settle RUN_ID
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dagster import DagsterInstance, DagsterRun, RunsFilter
from entrepot.errors import EntrepotError, InvalidArgument

from entrepot_dagster.rerun import ENDED, code_of, find_run, policy_of_job, rerun
from entrepot_dagster.sensors import settle


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; return the exit code, 0 on success."""
    parser = argparse.ArgumentParser(
        prog="python -m entrepot_dagster", description="What the sensors of Entrepot's policy do, by hand."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    helps = {
        "rerun": "re-execute a failed run's own steps that did not end, and those whose values they miss",
        "settle": "write the checkpoints that a run had put off",
    }
    for verb, text in helps.items():
        added = verbs.add_parser(verb, help=text)
        which = added.add_mutually_exclusive_group(required=True)
        which.add_argument("run_id", nargs="?", help="of the run")
        which.add_argument("--last", action="store_true", help="the run that was begun last")
    asked = parser.parse_args(arguments)
    with DagsterInstance.get() as instance:
        try:
            run = _run(instance, asked.run_id, asked.verb == "rerun")
            return _rerun(instance, run) if asked.verb == "rerun" else _settle(instance, run)
        except EntrepotError as error:
            print(f"entrepot: {error}", file=sys.stderr)
            return 1


def _run(instance: DagsterInstance, run_id: str | None, failed: bool) -> DagsterRun:
    if run_id is not None:
        return find_run(instance, run_id)
    found = instance.get_runs(RunsFilter(statuses=list(ENDED)) if failed else None, limit=1)
    if not found:
        raise InvalidArgument(f"there is no such run in the Dagster instance {instance.root_directory}")
    return found[0]


def _rerun(instance: DagsterInstance, run: DagsterRun) -> int:
    results = rerun(instance, run.run_id)
    for result in results:
        print(f"run {result.run_id}: {'succeeded' if result.success else 'failed'}")
    return 0 if results and results[-1].success else 1


def _settle(instance: DagsterInstance, run: DagsterRun) -> int:
    at_work = policy_of_job(code_of(run).get_definition(), instance, run)
    if at_work is None:
        raise InvalidArgument("the job of this run has no policy: set ENTREPOT_POLICY, or its IO manager's `policy`")
    report = settle(at_work, run)
    print(f"{report.written} written, {len(report.abandoned)} abandoned, {report.swept} chunks removed")
    for problem in report.problems:
        print(f"entrepot: {problem}", file=sys.stderr)
    return 1 if report.abandoned else 0


if __name__ == "__main__":
    sys.exit(main())
