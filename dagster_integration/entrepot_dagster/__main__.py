"""``python -m entrepot_dagster``: does what the sensors do, for those who run jobs without Dagster's daemon.

python -m entrepot_dagster rerun RUN_ID      # or --last; DAGSTER_HOME selects the instance
python -m entrepot_dagster finalize RUN_ID
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dagster import DagsterInstance, DagsterRun, RunsFilter
from entrepot.errors import EntrepotError, InvalidArgument

from entrepot_dagster.rerun import FAILED_STATUSES, binding_of_job, find_run, reconstruct_job, rerun
from entrepot_dagster.sensors import finalize_run

# Former names of subcommands, deprecated.
ALIASES = {"finalize": ("settle",)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; return the exit code, 0 on success."""
    parser = argparse.ArgumentParser(
        prog="python -m entrepot_dagster", description="Run by hand what the sensors of Entrepot's policy do."
    )
    subcommands = parser.add_subparsers(dest="subcommand", required=True)
    helps = {
        "rerun": "re-execute the unfinished steps of a failed run and the steps whose lost values they need",
        "finalize": "write the pending checkpoints of a run",
    }
    for subcommand, text in helps.items():
        subparser = subcommands.add_parser(subcommand, help=text, aliases=ALIASES.get(subcommand, ()))
        run_selection = subparser.add_mutually_exclusive_group(required=True)
        run_selection.add_argument("run_id", nargs="?", help="ID of the run")
        run_selection.add_argument("--last", action="store_true", help="the most recent run")
    options = parser.parse_args(arguments)
    for name, former_names in ALIASES.items():
        if options.subcommand in former_names:
            print(f"entrepot: {options.subcommand!r} is deprecated; use {name!r}", file=sys.stderr)
    with DagsterInstance.get() as instance:
        try:
            run = _select_run(instance, options.run_id, options.subcommand == "rerun")
            return _rerun(instance, run) if options.subcommand == "rerun" else _finalize(instance, run)
        except EntrepotError as error:
            print(f"entrepot: {error}", file=sys.stderr)
            return 1


def _select_run(instance: DagsterInstance, run_id: str | None, failed: bool) -> DagsterRun:
    if run_id is not None:
        return find_run(instance, run_id)
    runs = instance.get_runs(RunsFilter(statuses=list(FAILED_STATUSES)) if failed else None, limit=1)
    if not runs:
        raise InvalidArgument(f"no matching run in the Dagster instance {instance.root_directory}")
    return runs[0]


def _rerun(instance: DagsterInstance, run: DagsterRun) -> int:
    results = rerun(instance, run.run_id)
    for result in results:
        print(f"run {result.run_id}: {'succeeded' if result.success else 'failed'}")
    return 0 if results and results[-1].success else 1


def _finalize(instance: DagsterInstance, run: DagsterRun) -> int:
    binding = binding_of_job(reconstruct_job(run).get_definition(), instance, run)
    if binding is None:
        raise InvalidArgument("the job of this run has no policy: set ENTREPOT_POLICY or its IO manager's `policy`")
    report = finalize_run(binding, run)
    print(f"{report.written} written, {len(report.abandoned)} abandoned, {report.swept} chunks removed")
    for problem in report.problems:
        print(f"entrepot: {problem}", file=sys.stderr)
    return 1 if report.abandoned else 0


if __name__ == "__main__":
    sys.exit(main())
