"""Subcommands of the command line: policy check, explain and schema; events."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    from entrepot._cli_common import SubParsers

    from entrepot_io.policy.events import Event
    from entrepot_io.policy.model import Policy

_HOSTS = ("airflow", "dagster", "kedro")


def add_verbs(verbs: SubParsers) -> None:
    """Add this module's subcommands."""
    family = verbs.add_parser("policy", help="check and explain the policy of checkpoints and failover")
    members = family.add_subparsers(dest="action", metavar="ACTION", required=True)

    check = members.add_parser("check", help="read a policy, and say all that is wrong with it")
    check.add_argument("file", nargs="?", help="the file (default: ENTREPOT_POLICY)")
    check.add_argument("--probe", action="store_true", help="also write, read and remove a small file at each target")
    check.set_defaults(run=run_check)

    explain = members.add_parser("explain", help="what the policy does about a task")
    explain.add_argument("task", help="its name")
    explain.add_argument("--file", help="the policy (default: ENTREPOT_POLICY)")
    explain.add_argument("--host", choices=_HOSTS, default="airflow", help="default: airflow")
    explain.add_argument("--pipeline", default="", help="DAG, job or pipeline")
    explain.add_argument("--asset", default="", help="asset key, its parts joined by '/'")
    explain.add_argument("--dataset", default="", help="name in Kedro's catalog")
    explain.add_argument("--key", default="", help="key of the output in the store")
    explain.add_argument("--tag", action="append", default=[], help="a tag, may be repeated")
    explain.add_argument("--type", default="", help="type of the output, such as pandas.DataFrame")
    explain.add_argument("--size", type=int, metavar="BYTES", help="of the output")
    explain.add_argument("--fan-out", type=int, metavar="N", help="how many tasks read the output")
    explain.set_defaults(run=run_explain)

    schema = members.add_parser("schema", help="the JSON schema of policies, for editors")
    schema.set_defaults(run=run_schema)

    events = verbs.add_parser("events", help="what happened: losses, reloads, checkpoints, and by which rule")
    events.add_argument("--scope", help="scope (default: ENTREPOT_SCOPE; without either: all scopes)")
    events.add_argument("--folder", help="of the logs (default: ENTREPOT_EVENTS, or the user's state folder)")
    events.add_argument("--kind", action="append", default=[], help="only these kinds, may be repeated")
    events.add_argument("--follow", "-f", action="store_true", help="go on with what happens; needs one scope")
    events.add_argument("--json", action="store_true", help="one JSON object a line")
    events.set_defaults(run=run_events)


def run_check(arguments: argparse.Namespace) -> int:
    """``entrepot policy check``."""
    from entrepot_io.policy.checks import probe
    from entrepot_io.policy.problems import PolicyError

    policy = _policy(arguments.file)
    if arguments.probe and (problems := probe([*policy.targets.values(), *policy.all_targets()])):
        raise PolicyError(dict.fromkeys(problems))
    rules = f"{len(policy.checkpoints)} checkpoint rules, {len(policy.failover)} failover rules"
    if policy.memory:
        rules += f", {len(policy.memory) - 1} memory rules"
    print(f"{policy.source}: {rules}, {len(policy.all_targets())} targets; nothing is wrong with it")
    return 0


def run_explain(arguments: argparse.Namespace) -> int:
    """``entrepot policy explain``."""
    from entrepot_io.policy.explain import explain
    from entrepot_io.policy.subject import Subject, Task

    subject = Subject(
        Task(arguments.host, arguments.pipeline, "", arguments.task),
        key=arguments.key,
        asset=arguments.asset,
        dataset=arguments.dataset,
        tags=frozenset(arguments.tag),
        type=arguments.type,
        nbytes=arguments.size,
        fan_out=arguments.fan_out,
    )
    print("\n".join(explain(_policy(arguments.file), subject)))
    return 0


def run_schema(arguments: argparse.Namespace) -> int:
    """``entrepot policy schema``."""
    from entrepot_io.policy.definition import schema_text

    sys.stdout.write(schema_text())
    return 0


def run_events(arguments: argparse.Namespace) -> int:
    """``entrepot events``."""
    from pathlib import Path

    from entrepot_io.policy.events import default_folder, follow, log_file, read_events

    scope = arguments.scope or os.environ.get("ENTREPOT_SCOPE")
    if scope:
        paths = [log_file(scope, arguments.folder)]
    else:
        paths = sorted(Path(arguments.folder or default_folder()).glob("*.jsonl"))
    if arguments.follow and not scope:
        raise InvalidArgument("--follow needs the scope whose events it follows: --scope NAME, or ENTREPOT_SCOPE")
    found = sorted(
        (event for path in paths for event in read_events(path, older_only=arguments.follow)), key=lambda one: one.time
    )
    for event in found:
        _print(event, arguments)
    if arguments.follow:
        for following in follow(paths[0]):
            if following is not None:
                _print(following, arguments)
    return 0


def _print(event: Event, arguments: argparse.Namespace) -> None:
    if arguments.kind and event.kind not in arguments.kind:
        return
    print(json.dumps(asdict(event)) if arguments.json else str(event), flush=True)


def _policy(file: str | None) -> Policy:
    from entrepot_io.policy.reading import VARIABLE, find_policy

    policy = find_policy(file)
    if policy is None:
        raise InvalidArgument(f"there is no policy: give its file, or set {VARIABLE}")
    return policy
