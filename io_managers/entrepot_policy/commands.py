"""Subcommands of the command line: policy new, check, explain and schema; events."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

from entrepot.errors import InvalidArgument
from entrepot.phrases import count_of

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers

    from entrepot_policy.rules.model import Policy
    from entrepot_policy.state.events import Event

_ORCHESTRATORS = ("airflow", "dagster", "kedro")


def add_subcommands(subparsers: SubParsers) -> None:
    """Add this module's subcommands."""
    policy_parser = subparsers.add_parser("policy", help="write, check and explain the checkpoint and failover policy")
    actions = policy_parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    new = actions.add_parser("new", help="write a first policy with comments, and the schema for editors beside it")
    new.add_argument("file", nargs="?", help="the file to write, which must not exist (default: print the policy)")
    new.add_argument("--for", dest="orchestrator", choices=_ORCHESTRATORS, required=True, help="whose tasks it is for")
    new.add_argument("--target", metavar="URL", help="URL template for checkpoints (default: a folder of the user)")
    new.set_defaults(run=run_new)

    check = actions.add_parser("check", help="validate a policy and report every problem")
    check.add_argument("file", nargs="?", help="the policy file (default: ENTREPOT_POLICY)")
    check.add_argument("--probe", action="store_true", help="also write, read and remove a small file at each target")
    check.set_defaults(run=run_check)

    explain = actions.add_parser("explain", help="show what the policy does for a task")
    explain.add_argument("task", help="name of the task")
    explain.add_argument("--file", help="the policy file (default: ENTREPOT_POLICY)")
    explain.add_argument("--orchestrator", choices=_ORCHESTRATORS, default="airflow", help="default: airflow")
    explain.add_argument(  # its former name
        "--host", dest="orchestrator", choices=_ORCHESTRATORS, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    explain.add_argument("--pipeline", default="", help="DAG, job or pipeline")
    explain.add_argument("--asset", default="", help="asset key, its parts joined by '/'")
    explain.add_argument("--dataset", default="", help="name in Kedro's catalog")
    explain.add_argument("--key", default="", help="key of the output in the store")
    explain.add_argument("--tag", action="append", default=[], help="a tag (repeatable)")
    explain.add_argument("--type", default="", help="type of the output, such as pandas.DataFrame")
    explain.add_argument("--size", type=int, metavar="BYTES", help="size of the output")
    explain.add_argument("--fan-out", type=int, metavar="N", help="how many tasks read the output")
    explain.set_defaults(run=run_explain)

    schema = actions.add_parser("schema", help="print the JSON schema of policies, for editors")
    schema.add_argument("--path", action="store_true", help="print where the package has the schema as a file")
    schema.set_defaults(run=run_schema)

    events = subparsers.add_parser("events", help="show the event log: losses, reloads, checkpoints and their rules")
    events.add_argument("--scope", help="scope (default: ENTREPOT_SCOPE, or all scopes)")
    events.add_argument("--folder", help="folder of the logs (default: ENTREPOT_EVENTS, or the user's state folder)")
    events.add_argument(
        "--kind", action="append", type=_event_kind, default=[], help="only events of this kind (repeatable)"
    )
    events.add_argument("--follow", "-f", action="store_true", help="print new events as they occur; requires a scope")
    events.add_argument("--json", action="store_true", help="print one JSON object per line")
    events.set_defaults(run=run_events)


def _event_kind(text: str) -> str:
    from entrepot_policy.state.events import KINDS

    if text not in KINDS:
        raise argparse.ArgumentTypeError(f"no event is of kind {text!r}; the kinds are {', '.join(KINDS)}")
    return text


def _one_problem_a_line(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Print a policy's problems as they are: an editor finds file, line and column only at the start of a line."""

    @wraps(run)
    def run_and_print(arguments: argparse.Namespace) -> int:
        from entrepot_policy.schema.diagnostics import PolicyError

        try:
            return run(arguments)
        except PolicyError as error:
            print(error, file=sys.stderr)
            return 1

    return run_and_print


@_one_problem_a_line
def run_check(arguments: argparse.Namespace) -> int:
    """``entrepot policy check``."""
    from entrepot_policy.rules.validation import probe_targets
    from entrepot_policy.schema.diagnostics import PolicyError

    policy = _require_policy(arguments.file, "its file")
    if arguments.probe and (
        problems := probe_targets([*policy.targets.values(), *policy.all_targets()], remove_folders=True)
    ):
        raise PolicyError(dict.fromkeys(problems))
    counts = [count_of(len(policy.checkpoints), "checkpoint rule"), count_of(len(policy.failover), "failover rule")]
    if policy.memory:
        counts.append(count_of(len(policy.memory) - 1, "memory rule"))
    counts.append(count_of(len(policy.all_targets()), "target"))
    print(f"{policy.source}: {', '.join(counts)}; no problems found")
    return 0


@_one_problem_a_line
def run_explain(arguments: argparse.Namespace) -> int:
    """``entrepot policy explain``."""
    from entrepot_policy.explanation import explain
    from entrepot_policy.rules.match_target import Subject, Task

    subject = Subject(
        Task(arguments.orchestrator, arguments.pipeline, "", arguments.task),
        key=arguments.key,
        asset=arguments.asset,
        dataset=arguments.dataset,
        tags=frozenset(arguments.tag),
        type=arguments.type,
        nbytes=arguments.size,
        fan_out=arguments.fan_out,
    )
    print("\n".join(explain(_require_policy(arguments.file, "--file FILE"), subject)))
    return 0


@_one_problem_a_line
def run_new(arguments: argparse.Namespace) -> int:
    """``entrepot policy new``."""
    from entrepot_policy.rules.loader import parse_policy
    from entrepot_policy.schema.published import SCHEMA_FILE, shipped_schema
    from entrepot_policy.schema.starting_file import starting_file

    def checked_text(schema: str) -> str:
        text = starting_file(arguments.orchestrator, schema, arguments.target)
        parse_policy(text, arguments.file or "policy", {})  # a bad --target is reported before anything is written
        return text

    if arguments.file is None:
        sys.stdout.write(checked_text(str(shipped_schema())))
        return 0
    file = Path(arguments.file)
    text = checked_text(f"./{SCHEMA_FILE}")
    if file.name == SCHEMA_FILE:
        raise InvalidArgument(f"{file} is the name of the schema beside the policy: choose another for the policy")
    if file.exists():
        raise InvalidArgument(f"{file} exists and is left as it is: remove it, or write to another file")
    written = _write_schema(file.with_name(SCHEMA_FILE))
    try:
        with file.open("x", encoding="utf-8") as output:
            output.write(text)
    except OSError as error:
        raise InvalidArgument(f"cannot write {file}: {error.strerror}") from error
    print(f"wrote {file}{f' and {written}' if written else ''}; it takes effect with ENTREPOT_POLICY={file.resolve()}")
    return 0


def _write_schema(file: Path) -> Path | None:
    """Write the schema for editors, or bring it up to date; None: there already."""
    from entrepot_policy.schema.published import is_policy_schema, schema_text

    text = schema_text()
    try:
        present = file.read_text(encoding="utf-8") if file.exists() else None
        if present == text:
            return None
        if present is not None and not is_policy_schema(present):
            raise InvalidArgument(f"{file} is not the schema of a policy and is left as it is; editors expect it there")
        file.write_text(text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot write {file}, the schema for editors: {error}") from error
    return file


def run_schema(arguments: argparse.Namespace) -> int:
    """``entrepot policy schema``."""
    from entrepot_policy.schema.published import schema_text, shipped_schema

    sys.stdout.write(f"{shipped_schema()}\n" if arguments.path else schema_text())
    return 0


def run_events(arguments: argparse.Namespace) -> int:
    """``entrepot events``."""
    from entrepot_policy.state.events import default_folder, follow, log_file, read_events

    scope = arguments.scope or os.environ.get("ENTREPOT_SCOPE")
    if scope:
        paths = [log_file(scope, arguments.folder)]
    else:
        paths = sorted(Path(arguments.folder or default_folder()).glob("*.jsonl"))
    if arguments.follow and not scope:
        raise InvalidArgument("--follow requires a scope: set --scope NAME or ENTREPOT_SCOPE")
    matches = sorted(
        (event for path in paths for event in read_events(path, older_only=arguments.follow)),
        key=lambda item: item.time,
    )
    for event in matches:
        _print_event(event, arguments)
    if arguments.follow:
        for next_event in follow(paths[0]):
            if next_event is not None:
                _print_event(next_event, arguments)
    return 0


def _print_event(event: Event, arguments: argparse.Namespace) -> None:
    if arguments.kind and event.kind not in arguments.kind:
        return
    print(json.dumps(asdict(event)) if arguments.json else str(event), flush=True)


def _require_policy(file: str | None, argument: str) -> Policy:
    from entrepot_policy.rules.loader import VARIABLE, find_policy

    policy = find_policy(file)
    if policy is None:
        raise InvalidArgument(f"no policy found: pass {argument}, or set {VARIABLE}")
    return policy
