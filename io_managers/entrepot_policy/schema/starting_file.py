"""A first policy for an orchestrator: the keys that most projects set, each with what the definition says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import Template
from typing import get_args
from urllib.parse import quote

from entrepot_policy.schema.constants import OrchestratorName
from entrepot_policy.schema.published import reference

ORCHESTRATORS: tuple[OrchestratorName, ...] = get_args(OrchestratorName)
DEFAULT_TARGET = "${HOME}/.local/state/entrepot/checkpoints/{pipeline}/{run}"
COLUMNS = 100

# A line that begins with a tilde is written as a comment: an editor's command to remove comments makes it a setting.
_BODY = Template("""\
version: 1

checkpoint:
  target: $target
  mode: async
  ~keep: 3
  rules:
    - match: {tag: scratch}
      when: never
    - match: $example
      mode: sync
      keep: 2
    - match: "*"
      when: auto

failover:
  - on: [object_lost, instance_lost, checkpoint_damaged]
    do: [reload_checkpoint, rerun_upstream]
    ~max_tasks: 100
  - on: task_failed
    do:
      - retry:
          attempts: 2
          delay: 10s
  - on: store_full
    do: [evict, retry]

~memory:
~  rules:
~    - match: {tag: deterministic}
~      recompute: auto

~events:
~  max_bytes: 16MiB
""")


@dataclass(frozen=True, slots=True)
class _Start:
    """What differs between the orchestrators: how the file is put to use, what rules match, an example of a match."""

    title: str
    use: str
    names: str
    example: str


_STARTS: dict[OrchestratorName, _Start] = {
    "airflow": _Start(
        "Airflow",
        "To use it, set AIRFLOW__ENTREPOT__POLICY to the path of this file wherever DAGs are parsed, scheduled and "
        "run.",
        "In rules, 'task' is a task ID with its groups, 'pipeline' the DAG, 'tag' a tag of the DAG, and 'asset' the "
        "name of a task's only outlet.",
        '{task: "train_*"}',
    ),
    "dagster": _Start(
        "Dagster",
        "To use it, set ENTREPOT_POLICY to the path of this file, or pass it as EntrepotIOManager(policy=...). Reruns "
        "and retries also need policy_sensors(), policy_retries() and policy_failure_hook in the definitions.",
        "In rules, 'task' is a step, 'pipeline' the job, 'asset' the asset key with its parts joined by '/', and 'tag' "
        "a tag of op or asset, or 'partition=KEY'.",
        '{asset: "models/*"}',
    ),
    "kedro": _Start(
        "Kedro",
        "To use it, set ENTREPOT_POLICY to the path of this file, or ENTREPOT_POLICY in the project's settings.py.",
        "In rules, 'task' is the name of a node with its namespace, 'dataset' a name in the catalog, 'tag' a tag of "
        "the node, and 'pipeline' the value of --pipelines, or __default__.",
        '{dataset: "model_*"}',
    ),
}


def starting_file(orchestrator: OrchestratorName, schema: str, target: str | None = None) -> str:
    """The text of a first policy.

    Args:
        orchestrator: the one whose tasks it is for.
        schema: where YAML language servers read the schema: a path, absolute or relative to the file, or a URL.
        target: a URL template for checkpoints; None: a folder of the user.
    """
    start = _STARTS[orchestrator]
    # Within single quotes, YAML knows no escapes but a doubled quote.
    chosen = DEFAULT_TARGET if target is None else "'{}'".format(target.replace("'", "''"))
    lines = [
        # Language servers take the location up to the first blank.
        f"# yaml-language-server: $schema={quote(schema, safe='/:?#[]@!$&()*+,;=%~')}",
        *_comment(f"Entrepot's policy for {start.title}: what to checkpoint, and what to do when something is lost."),
        *_comment(start.use),
        *_comment(start.names),
        *_comment("Check this file with 'entrepot policy check FILE'. Lines that are comments show more settings."),
        "",
    ]
    lines += _documented(_BODY.substitute(target=chosen, example=start.example))
    return "\n".join(lines) + "\n"


def _comment(text: str, prefix: str = "# ") -> Iterator[str]:
    """The text as comment lines of limited width."""
    line = prefix
    for word in text.split():
        if len(line) + len(word) > COLUMNS and line != prefix:
            yield line.rstrip()
            line = prefix
        line += word + " "
    yield line.rstrip()


def _documented(body: str) -> Iterator[str]:
    """The lines of the body; before the first use of each key, what the key means."""
    meanings = {name.replace("[]", ""): (default, meaning) for name, default, meaning in reference()}
    open_keys: list[tuple[int, str]] = []  # the column and name of each key that the line is within
    explained: set[str] = set()
    for line in body.splitlines():
        setting = re.match(r"(?P<blanks> *)(?P<off>~?)(?P<inner> *)(?P<item>(- )?)(?P<key>[a-z_]+):", line)
        if setting is None:
            yield line
            continue
        outer, off, inner = setting["blanks"], "# " if setting["off"] else "", setting["inner"]
        column = len(outer + inner + setting["item"])
        open_keys = [(place, key) for place, key in open_keys if place < column]
        open_keys.append((column, setting["key"]))
        path = ".".join(key for _, key in open_keys)
        if path not in explained:
            explained.add(path)
            default, meaning = meanings[path]
            if default not in ("", "required"):
                meaning += f" (default: {default})"
            # In a section that is off altogether, removing the comment signs of all its lines leaves it a comment.
            yield from _comment(f"{meaning[0].upper()}{meaning[1:]}.", f"{outer}{off if not outer else ''}{inner}# ")
        yield outer + off + line[setting.end("off") :]
