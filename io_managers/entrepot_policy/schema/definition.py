"""The definition of a policy: the single source of the parser, the JSON schema and the reference."""

from __future__ import annotations

import json
from typing import Any

from entrepot_policy.schema.sections import Field, OpenMapping, Section, Union
from entrepot_policy.schema.value_types import (
    BYTES,
    COUNT,
    SECONDS,
    Boolean,
    Comparison,
    Enum,
    Integer,
    List,
    Number,
    Scalars,
    Text,
)

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
_GLOBS = List(_GLOB, bare=True)
_NAME = "[a-z][a-z0-9]*(_[a-z0-9]+)*"
_TARGET = Text("the name of a target, or a URL", example="s3://bucket/checkpoints/{pipeline}/{run}")


def _range(kind: Any) -> List:
    return List(Comparison(kind), bare=True)


_MATCH = Section(
    "a match",
    {
        "host": Field(List(Enum(HOSTS), bare=True), "the orchestrator"),
        "pipeline": Field(_GLOBS, "Airflow's DAG, Dagster's job, Kedro's pipeline"),
        "task": Field(_GLOBS, "Airflow's task, Dagster's op or step, Kedro's node"),
        "asset": Field(_GLOBS, "the asset key, its parts joined by '/'"),
        "dataset": Field(_GLOBS, "the name in Kedro's catalog"),
        "key": Field(_GLOBS, "the key in the store, as 'entrepot ls' shows it"),
        "tag": Field(_GLOBS, "a tag of the task or asset; a tag with a value is 'name=value'"),
        "type": Field(_GLOBS, "the type of the value, such as 'pandas.*'"),
        "size": Field(_range(BYTES), "size in bytes, such as '>=1MiB', or a list of bounds that must all hold"),
    },
)
_MATCHES = Union(_GLOB, _MATCH)

_WHEN = Section(
    "a condition",
    {
        "recompute_seconds": Field(
            _range(SECONDS), "duration of the task's last run and of upstream tasks without checkpointed outputs"
        ),
        "size": Field(_range(BYTES), "size of the value in bytes"),
        "fan_out": Field(_range(COUNT), "how many tasks read the value, if the orchestrator knows"),
    },
)

_CHECKPOINT_RULE = Section(
    "a rule of 'checkpoint'",
    {
        "match": Field(_MATCHES, "which outputs: a glob over task names, or a mapping; all its keys must match", '"*"'),
        "every": Field(Integer(1), "only in every n-th run of the task", "1"),
        "when": Field(Union(Enum(("always", "never", "auto")), _WHEN), "the condition; all its keys must hold",
                      "always"),
        "mode": Field(Enum(("sync", "async")), "whether the task waits for the checkpoint", "as in checkpoint"),
        "keep": Field(Integer(1), "how many checkpoints of an output to keep, across all runs", "as in checkpoint"),
        "target": Field(_TARGET, "where checkpoints are written", "as in checkpoint"),
    },
)  # fmt: skip

_RETRY = Section(
    "retry",
    {
        "attempts": Field(Integer(1, 1000), "maximum number of retries", "max_attempts of the rule"),
        "delay": Field(SECONDS, "seconds before the first retry", "backoff of the rule"),
        "factor": Field(Number(1, 100), "factor by which the delay grows with each retry", "2"),
        "max_delay": Field(SECONDS, "maximum delay in seconds", "max_backoff of the rule"),
    },
)
_STEP = Union(
    Enum(STEPS),
    Section(
        "a step",
        {
            "retry": Field(_RETRY, "retry with limits of its own"),
            "fail": Field(Section("fail", {"reason": Field(Text("a string"), "text of the error", required=True)}),
                          "give up, with a reason"),
        },
        single=True,
    ),
)  # fmt: skip

_RECOMPUTE = Enum(("auto", "never"))
_MEMORY_RULE = Section(
    "a rule of 'memory'",
    {
        "match": Field(_MATCHES, "which outputs: as in a checkpoint rule", '"*"'),
        "recompute": Field(_RECOMPUTE, "auto: drop values that are cheaper to recompute than to spill",
                           required=True),
    },
)  # fmt: skip

_FAILOVER_RULE = Section(
    "a rule of 'failover'",
    {
        "on": Field(List(Enum(EVENTS), bare=True), "the event, or a list of events", required=True),
        "match": Field(_MATCHES, "tasks or outputs, as in a checkpoint rule; for a lost object, its producer", '"*"'),
        "do": Field(List(_STEP, bare=True), "the steps, tried in order until one succeeds", required=True),
        "max_attempts": Field(Integer(1, 1000), "maximum passes through the steps, and retries of a retry step",
                              str(DEFAULT_MAX_ATTEMPTS)),
        "backoff": Field(SECONDS, "seconds before the second attempt; doubled each time", "1s"),
        "max_backoff": Field(SECONDS, "maximum back-off in seconds", "60s"),
        "max_tasks": Field(Integer(1), "maximum number of tasks to rerun for one loss", str(DEFAULT_MAX_TASKS)),
    },
)  # fmt: skip

POLICY = Section(
    "a policy",
    {
        "version": Field(Integer(1), "format version: 1", required=True),
        "targets": Field(
            OpenMapping(
                "the name of a target",
                _NAME,
                Section(
                    "a target",
                    {
                        "url": Field(
                            Text("a URL", example="s3://bucket/checkpoints/{run}"), "a URL template", required=True
                        ),
                        "options": Field(Scalars(), "for fsspec's driver; ${NAME} is read from the environment"),
                        "fallback": Field(
                            Text("the name of a target", _NAME), "target to use if this one cannot be written"
                        ),
                    },
                ),
            ),
            "named locations for checkpoints",
        ),
        "checkpoint": Field(
            Section(
                "checkpoint",
                {
                    "enabled": Field(Boolean(), "whether checkpoints are written", "true"),
                    "target": Field(_TARGET, "default target of the rules"),
                    "mode": Field(Enum(("sync", "async")), "whether tasks wait for checkpoints", DEFAULT_MODE),
                    "keep": Field(Integer(1), "how many checkpoints of an output to keep, across all runs", "all"),
                    "queue": Field(Integer(1, 100_000), "async: maximum pending checkpoints", str(DEFAULT_QUEUE)),
                    "wait": Field(SECONDS, "async: seconds to wait for them at the end of a run or process", "60s"),
                    "on_error": Field(
                        Enum(("warn", "fail")), "whether a failed sync checkpoint fails its task", "warn"
                    ),
                    "failures_per_day": Field(Number(), "auto: assumed rate of store losses, before any occur", "0.1"),
                    "rules": Field(
                        List(_CHECKPOINT_RULE), "the first rule that matches an output applies", required=True
                    ),
                },
            ),
            "what to checkpoint, where and when",
        ),
        "memory": Field(
            Section(
                "memory",
                {
                    "recompute": Field(_RECOMPUTE, "for outputs that no rule matches", "never"),
                    "overhead": Field(
                        SECONDS,
                        "overhead of rerunning a task, in addition to its own run time",
                        "0 if the orchestrator reruns it in the reader's process, else 10s",
                    ),
                    "rules": Field(List(_MEMORY_RULE), "the first rule that matches an output applies"),
                },
            ),
            "what may be dropped when memory is short, and recomputed when it is read",
        ),
        "failover": Field(List(_FAILOVER_RULE), "what to do when something is lost; the first matching rule applies"),
        "events": Field(
            Section(
                "events",
                {
                    "enabled": Field(Boolean(), "whether events are logged", "true"),
                    "folder": Field(Text("an absolute path", "/.+"), "log folder", "$XDG_STATE_HOME/entrepot/events"),
                    "max_bytes": Field(BYTES, "maximum size; when it is reached, the older half is removed", "16MiB"),
                },
            ),
            "the event log",
        ),
    },
)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a policy, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:entrepot:policy:{FORMAT_VERSION}",
        "title": "Entrepot policy",
        "description": "What to checkpoint, and what to do when something is lost.",
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
        for key, field in kind.fields.items():
            name = f"{path}.{key}" if path else key
            rows.append((name, "required" if field.required else field.default, field.doc))
            _describe(field.kind, name, rows)
    elif isinstance(kind, OpenMapping):
        _describe(kind.value, f"{path}.NAME", rows)
    elif isinstance(kind, List):
        _describe(kind.item, path if kind.bare else f"{path}[]", rows)
    elif isinstance(kind, Union):
        _describe(kind.table, path, rows)
