"""The definition of a policy: the single source of the parser, the JSON schema and the reference."""

from __future__ import annotations

import json
from typing import Any

from entrepot_io.policy.kinds import (
    BYTES,
    COUNT,
    SECONDS,
    Choice,
    Comparison,
    Number,
    Scalars,
    Several,
    Switch,
    Text,
    Whole,
)
from entrepot_io.policy.sections import Either, Field, Named, Section

FORMAT_VERSION = 1
SCHEMA_FILE = "policy.schema.json"

HOSTS = ("airflow", "dagster", "kedro")
EVENTS = (
    "object_lost",
    "object_dropped",
    "checkpoint_damaged",
    "task_failed",
    "daemon_lost",
    "instance_lost",
    "store_full",
)
STEPS = ("reload_checkpoint", "reread_durable", "rerun_upstream", "retry", "evict", "fail")
# Steps that can handle each event.
STEPS_OF = {
    "object_lost": ("reload_checkpoint", "reread_durable", "rerun_upstream", "retry", "fail"),
    "object_dropped": ("reload_checkpoint", "reread_durable", "rerun_upstream", "retry", "fail"),
    "instance_lost": ("reload_checkpoint", "reread_durable", "rerun_upstream", "retry", "fail"),
    "checkpoint_damaged": ("reload_checkpoint", "reread_durable", "rerun_upstream", "retry", "fail"),
    "task_failed": ("retry", "fail"),
    "daemon_lost": ("retry", "fail"),
    "store_full": ("evict", "retry", "fail"),
}
MATCH_KEYS = ("host", "pipeline", "task", "asset", "dataset", "key", "tag", "type")

DEFAULT_MODE = "sync"
DEFAULT_QUEUE = 64
DEFAULT_WAIT_SECONDS = 60.0
DEFAULT_MAX_ATTEMPTS = 3
DEFAULT_BACKOFF_SECONDS = 1.0
DEFAULT_MAX_BACKOFF_SECONDS = 60.0
DEFAULT_MAX_TASKS = 100
DEFAULT_EVENT_BYTES = 16 << 20
DEFAULT_OVERHEAD_SECONDS = 10.0  # of an orchestrator that starts a process for each task, and polls for it

_GLOB = Text("a glob", example="train_*")
_GLOBS = Several(_GLOB, bare=True)
_NAME = "[a-z][a-z0-9]*(_[a-z0-9]+)*"
_TARGET = Text("the name of a target, or a URL", example="s3://bucket/checkpoints/{pipeline}/{run}")


def _range(kind: Any) -> Several:
    return Several(Comparison(kind), bare=True)


_MATCH = Section(
    "a match",
    {
        "host": Field(Several(Choice(HOSTS), bare=True), "the orchestrator"),
        "pipeline": Field(_GLOBS, "Airflow's DAG, Dagster's job, Kedro's pipeline"),
        "task": Field(_GLOBS, "Airflow's task, Dagster's op or step, Kedro's node"),
        "asset": Field(_GLOBS, "the asset key, its parts joined by '/'"),
        "dataset": Field(_GLOBS, "the name in Kedro's catalog"),
        "key": Field(_GLOBS, "the key in the store, as 'entrepot ls' shows it"),
        "tag": Field(_GLOBS, "a tag of the task or asset; a tag with a value is 'name=value'"),
        "type": Field(_GLOBS, "the type of the value, such as 'pandas.*'"),
        "size": Field(_range(BYTES), "bytes of the value, such as '>=1MiB', or a list of bounds that all hold"),
    },
)
_MATCHES = Either(_GLOB, _MATCH)

_WHEN = Section(
    "a condition",
    {
        "recompute_seconds": Field(
            _range(SECONDS), "seconds that the task, and what it needs and is in no checkpoint, took when last run"
        ),
        "size": Field(_range(BYTES), "bytes of the value"),
        "fan_out": Field(_range(COUNT), "how many tasks read the value, where the host knows it"),
    },
)

_CHECKPOINT_RULE = Section(
    "a rule of 'checkpoint'",
    {
        "match": Field(_MATCHES, "which outputs: a glob over task names, or a mapping whose keys all fit", '"*"'),
        "every": Field(Whole(1), "only in every n-th run of the task", "1"),
        "when": Field(Either(Choice(("always", "never", "auto")), _WHEN), "on which condition; all its keys hold",
                      "always"),
        "mode": Field(Choice(("sync", "async")), "whether the task waits for the checkpoint", "that of checkpoint"),
        "keep": Field(Whole(1), "how many checkpoints of an output stay, over all runs", "that of checkpoint"),
        "target": Field(_TARGET, "where to", "that of checkpoint"),
    },
)  # fmt: skip

_RETRY = Section(
    "retry",
    {
        "attempts": Field(Whole(1, 1000), "how often at most", "max_attempts of the rule"),
        "delay": Field(SECONDS, "seconds before the first", "backoff of the rule"),
        "factor": Field(Number(1, 100), "what the delay grows by each time", "2"),
        "max_delay": Field(SECONDS, "seconds that it grows to", "max_backoff of the rule"),
    },
)
_STEP = Either(
    Choice(STEPS),
    Section(
        "a step",
        {
            "retry": Field(_RETRY, "again, with limits of its own"),
            "fail": Field(Section("fail", {"reason": Field(Text("a text"), "what the error says", required=True)}),
                          "give up, and say why"),
        },
        single=True,
    ),
)  # fmt: skip

_RECOMPUTE = Choice(("auto", "never"))
_MEMORY_RULE = Section(
    "a rule of 'memory'",
    {
        "match": Field(_MATCHES, "which outputs: as in a checkpoint rule", '"*"'),
        "recompute": Field(_RECOMPUTE, "auto: dropped if making them again is cheaper than moving them to disk",
                           required=True),
    },
)  # fmt: skip

_FAILOVER_RULE = Section(
    "a rule of 'failover'",
    {
        "on": Field(Several(Choice(EVENTS), bare=True), "the event, or several", required=True),
        "match": Field(_MATCHES, "whose: as in a checkpoint rule; of an object, the task that made it", '"*"'),
        "do": Field(Several(_STEP, bare=True), "the steps, in order, until one helps", required=True),
        "max_attempts": Field(Whole(1, 1000), "how often the steps are gone through, and how often a retry tries",
                              str(DEFAULT_MAX_ATTEMPTS)),
        "backoff": Field(SECONDS, "seconds before the second attempt; doubled each time", "1s"),
        "max_backoff": Field(SECONDS, "seconds that the back-off grows to", "60s"),
        "max_tasks": Field(Whole(1), "the most tasks that may be rerun for one loss", str(DEFAULT_MAX_TASKS)),
    },
)  # fmt: skip

POLICY = Section(
    "a policy",
    {
        "version": Field(Whole(1), "the version of this format: 1", required=True),
        "targets": Field(
            Named(
                "the name of a target",
                _NAME,
                Section(
                    "a target",
                    {
                        "url": Field(
                            Text("a URL", example="s3://bucket/checkpoints/{run}"), "a template", required=True
                        ),
                        "options": Field(Scalars(), "for fsspec's driver; ${NAME} is taken from the environment"),
                        "fallback": Field(
                            Text("the name of a target", _NAME), "where to if this one cannot be written"
                        ),
                    },
                ),
            ),
            "places for checkpoints, by name",
        ),
        "checkpoint": Field(
            Section(
                "checkpoint",
                {
                    "enabled": Field(Switch(), "whether any checkpoint is written", "true"),
                    "target": Field(_TARGET, "where to, for rules that name none"),
                    "mode": Field(Choice(("sync", "async")), "whether tasks wait for checkpoints", DEFAULT_MODE),
                    "keep": Field(Whole(1), "how many checkpoints of an output stay, over all runs", "all"),
                    "queue": Field(Whole(1, 100_000), "async: how many may wait in a process", str(DEFAULT_QUEUE)),
                    "wait": Field(SECONDS, "async: seconds that the end of a run or process waits for them", "60s"),
                    "on_error": Field(
                        Choice(("warn", "fail")), "whether a task fails whose sync checkpoint fails", "warn"
                    ),
                    "failures_per_day": Field(Number(), "auto: how often stores are lost, before any is seen", "0.1"),
                    "rules": Field(
                        Several(_CHECKPOINT_RULE), "the first that matches an output decides", required=True
                    ),
                },
            ),
            "what is checkpointed, where and when",
        ),
        "memory": Field(
            Section(
                "memory",
                {
                    "recompute": Field(_RECOMPUTE, "of outputs that no rule matches", "never"),
                    "overhead": Field(
                        SECONDS,
                        "what it takes to have a task run again, beside its own time",
                        "0 where the host runs it in the reader's process, else 10s",
                    ),
                    "rules": Field(Several(_MEMORY_RULE), "the first that matches an output decides"),
                },
            ),
            "what may be dropped when memory is short, and made again when it is wanted",
        ),
        "failover": Field(
            Several(_FAILOVER_RULE), "what is done when something is lost; the first that matches decides"
        ),
        "events": Field(
            Section(
                "events",
                {
                    "enabled": Field(Switch(), "whether events are written down", "true"),
                    "folder": Field(Text("a folder", "/.+"), "where the log is", "$XDG_STATE_HOME/entrepot/events"),
                    "max_bytes": Field(BYTES, "what the log may take; the older half goes then", "16MiB"),
                },
            ),
            "the log of what happened",
        ),
    },
)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a policy, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:entrepot:policy:{FORMAT_VERSION}",
        "title": "Entrepot policy",
        "description": "What is checkpointed, and what is done when something is lost.",
        **POLICY.schema(),
    }


def schema_text() -> str:
    """The text of the published schema file."""
    return json.dumps(json_schema(), indent=2) + "\n"


def reference() -> list[tuple[str, str, str]]:
    """Every key with its default and its meaning, for the documentation."""
    rows: list[tuple[str, str, str]] = []
    _describe(POLICY, "", rows)
    return rows


def _describe(kind: Any, path: str, rows: list[tuple[str, str, str]]) -> None:
    if isinstance(kind, Section):
        for key, one in kind.fields.items():
            name = f"{path}.{key}" if path else key
            rows.append((name, "required" if one.required else one.default, one.doc))
            _describe(one.kind, name, rows)
    elif isinstance(kind, Named):
        _describe(kind.value, f"{path}.NAME", rows)
    elif isinstance(kind, Several):
        _describe(kind.item, path if kind.bare else f"{path}[]", rows)
    elif isinstance(kind, Either):
        _describe(kind.table, path, rows)
