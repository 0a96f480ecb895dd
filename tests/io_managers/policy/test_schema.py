"""The published JSON schema and the reader agree on documents of all shapes."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import entrepot_policy
import jsonschema
import yaml
from entrepot_policy.rules.loader import parse_policy, schema_problems
from entrepot_policy.schema.constants import EVENTS, STEPS
from entrepot_policy.schema.published import SCHEMA_FILE, json_schema, reference, schema_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
PAGE = Path(__file__).resolve().parents[3] / "docs" / "policy.md"

ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    2,
    1.5,
    2.0,
    1e13,
    "",
    "*",
    "a",
    "5",
    "5\n",
    "1MiB",
    "1 GiB",
    "60s",
    ".5",
    ">60",
    ">= 1MiB",
]
ODD += [
    "> 5s",
    "=3",
    "<",
    "sync",
    "auto",
    "never",
    "Deep",
    "a__b",
    "/x",
    "kedro",
    "fail",
    "retry",
    "\u0663",
    [],
    {},
    ["*"],
]
ODD += [["fail"], [">1", "<2"], {"task": "a"}, {"retry": {}}, {"retry": {}, "fail": {}}, {"url": "x"}, {"size": ">1"}]


def table(*required: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {name: fields[name] for name in required},
        optional={name: field for name, field in fields.items() if name not in required},
    )


def bare(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(item, st.lists(item, min_size=1, max_size=2))


globs = bare(st.sampled_from(["*", "a*", "12"]))
bounds = bare(st.sampled_from([">60", "<1", ">= 2", "<=0.5"]))
sizes = bare(st.sampled_from([">60", "<1MiB", ">= 2 GB", "<=0.5kB"]))
times = st.sampled_from(["1s", "5min", "1.25h", "7 d", 0, 3, 0.5])
counts = st.sampled_from([1, 2, 100, 2.0])
switches = st.booleans()
orchestrators = bare(st.sampled_from(["kedro", "airflow"]))
match = st.one_of(
    st.sampled_from(["*", "a"]),
    table(orchestrator=orchestrators, host=orchestrators, task=globs, asset=globs, tag=globs, type=globs, size=sizes),
)
when = st.one_of(
    st.sampled_from(["always", "never", "auto"]), table(recompute_seconds=bounds, size=sizes, fan_out=bounds)
)
modes = st.sampled_from(["sync", "async"])
urls = st.sampled_from(["/x", "deep", "s3://a/{run}"])
rules = table(match=match, every=counts, when=when, mode=modes, keep=counts, target=urls)
steps = st.one_of(
    st.sampled_from(STEPS),
    table("retry", retry=table(attempts=counts, delay=times, factor=counts, max_delay=times)),
    table("fail", fail=table("reason", reason=st.text(min_size=1, max_size=3))),
)
failover = table(
    "on", "do", on=bare(st.sampled_from(EVENTS)), match=match, do=bare(steps), max_attempts=counts, backoff=times,
    max_backoff=times, max_tasks=counts,
)  # fmt: skip
recompute = st.sampled_from(["auto", "never"])
memory = table(
    recompute=recompute,
    overhead=times,
    rules=st.lists(table("recompute", match=match, recompute=recompute), min_size=1, max_size=2),
)
targets = st.dictionaries(
    st.sampled_from(["a", "a_b", "c1"]),
    table("url", url=urls, options=st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
          fallback=st.sampled_from(["a", "b"])),
    max_size=2,
)  # fmt: skip
good = table(
    "version",
    version=st.sampled_from([1, 1.0]),
    targets=targets,
    checkpoint=table("rules", rules=st.lists(rules, min_size=1, max_size=2), target=urls, mode=modes, keep=counts,
                     queue=counts, wait=times, enabled=switches, on_error=st.sampled_from(["warn", "fail"])),
    failover=st.lists(failover, min_size=1, max_size=2),
    memory=memory,
    events=table(enabled=switches, folder=st.just("/x"), max_bytes=st.sampled_from(["1MiB", 5])),
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """A valid document, usually with some change: a value replaced, a key added, a key removed."""
    document = draw(good)
    for _ in range(draw(st.integers(0, 2))):
        odd = draw(st.sampled_from(ODD))
        places = list(_places(document))
        holder, key = draw(st.sampled_from(places))
        change = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if change == "remove":
            del holder[key]
        elif change == "add" and isinstance(holder, dict):
            holder[draw(st.sampled_from(["other", "match", "url", "on", "keep", "mode"]))] = copy.deepcopy(odd)
        else:
            holder[key] = copy.deepcopy(odd)
        if not document:
            break
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(inner):
        yield document, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(documents())
def test_schema_and_reader_agree(document: Any) -> None:
    text = json.dumps(document)  # JSON is valid YAML
    reported = schema_problems(text)
    assert VALIDATOR.is_valid(document) == (not reported), (text, list(map(str, reported)))


def test_both_see_good_and_bad() -> None:
    """The generator above produces enough valid and invalid documents to make the comparison meaningful."""
    seen: dict[bool, int] = {True: 0, False: 0}

    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.nested_given],
    )
    @given(documents())
    def look(document: Any) -> None:
        seen[VALIDATOR.is_valid(document)] += 1

    look()
    assert min(seen.values()) > 40, seen


def test_the_published_file_is_the_definition() -> None:
    file = Path(entrepot_policy.__file__).parent / SCHEMA_FILE
    assert file.read_text(encoding="utf-8") == schema_text()
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_the_policies_on_the_page_are_good() -> None:
    policies = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert policies
    for text in policies:
        policy = parse_policy(text, "page", {})
        assert policy.checkpoints or policy.memory
        assert VALIDATOR.is_valid(yaml.safe_load(text.replace("{on:", "{'on':")))


def test_the_page_has_every_key() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, default, doc in reference():
        assert f"| `{name}` | {default} | {doc} |" in page, f"docs/policy.md lacks the row of {name}"
