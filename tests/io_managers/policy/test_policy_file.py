"""Reading a policy file: all problems are reported at once, with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from entrepot.errors import InvalidArgument
from entrepot_policy.rules.loader import find_policy, load_policy, parse_policy
from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.schema.diagnostics import PolicyError

GOOD = """\
version: 1
targets:
  deep: {url: "/data/deep/{pipeline}/{run}", fallback: near}
  near: {url: /data/near}
checkpoint:
  target: deep
  keep: 3
  rules:
    - {match: "train_*", every: 1, mode: async, keep: 2}
    - {match: {tag: [heavy, "kind=model"], size: ">=1MiB"}, when: auto}
    - {match: "*", when: {recompute_seconds: ">60", size: ["<1GiB", ">=1kB"]}, target: "/other/{task}"}
failover:
  - {on: object_lost, do: [reload_checkpoint, rerun_upstream, fail]}
  - on: [task_failed, daemon_lost]
    do: {retry: {attempts: 5, delay: 100ms}}
  - {on: store_full, do: [evict, {fail: {reason: "buy more memory"}}], max_attempts: 2}
events: {max_bytes: 1MiB}
"""


def subject(name: str, **attributes: object) -> Subject:
    return Subject(Task("airflow", "etl", "r", name), **attributes)  # type: ignore[arg-type]


def problems(text: str, **environment: str) -> list[tuple[int, int, str]]:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "p.yaml", environment)
    return [(problem.location.line, problem.location.column, problem.text) for problem in caught.value.problems]


def only(text: str, **environment: str) -> tuple[int, int, str]:
    (problem,) = problems(text, **environment)
    return problem


def test_a_good_policy_says_what_was_written() -> None:
    policy = parse_policy(GOOD, "p.yaml", {})
    first, second, third = policy.checkpoints
    assert (first.mode, first.keep, first.every, first.location.line) == ("async", 2, 1, 9)
    assert [target.name for target in first.targets] == ["deep", "near"]
    assert (second.when.kind, second.keep) == ("auto", 3)
    assert [bound.number for bound in third.when.size] == [2.0**30, 1000.0]
    assert third.targets[0].root(task=Task("h", "p", "r", "a/b"), scope="s", session="") == "/other/a%2Fb"
    assert [step.name for step in policy.failover[0].steps] == ["reload_checkpoint", "rerun_upstream", "fail"]
    assert (policy.failover[1].steps[0].attempts, policy.failover[1].steps[0].delay) == (5, 0.1)
    assert policy.failover[2].steps[1].reason == "buy more memory"
    assert policy.events.max_bytes == 1 << 20


@pytest.mark.parametrize(
    ("match", "matched"),
    [
        ("orchestrator: [kedro, dagster]", {"kedro", "dagster"}),
        ("host: [kedro, dagster]", {"kedro", "dagster"}),
        ("orchestrator: [kedro, dagster], host: [kedro, airflow]", {"kedro"}),
        ("orchestrator: kedro, host: airflow", set()),
    ],
)
def test_an_orchestrator_is_matched_under_either_name(match: str, matched: set[str]) -> None:
    policy = parse_policy(f"version: 1\ncheckpoint: {{target: /x, rules: [{{match: {{{match}}}}}]}}\n", "p")
    names = {"airflow", "dagster", "kedro"}
    assert {name for name in names if policy.checkpoint_rule(Subject(Task(name, "p", "r", "t")))} == matched


@pytest.mark.parametrize("placeholder", ["{orchestrator}", "{host}"])
def test_the_orchestrator_is_in_a_target_under_either_name(placeholder: str) -> None:
    policy = parse_policy(
        f"version: 1\ncheckpoint: {{target: '/x/{placeholder}/{{run}}', rules: [{{match: '*'}}]}}", "p"
    )
    (target,) = policy.all_targets()
    assert target.root(task=Task("kedro", "p", "r", "t"), scope="s", session="") == "/x/kedro/r"


def test_the_first_match_wins() -> None:
    policy = parse_policy(GOOD, "p.yaml", {})
    decided = [
        policy.checkpoint_rule(case)
        for case in (
            subject("train_a", tags=frozenset({"heavy"}), nbytes=2 << 20),
            subject("load", tags=frozenset({"heavy"}), nbytes=2 << 20),
            subject("load", tags=frozenset({"heavy"}), nbytes=10),
            subject("load", tags=frozenset({"heavy"})),
        )
    ]
    assert [rule and rule.location.line for rule in decided] == [9, 10, 11, 11]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "the policy is empty"),
        ("version: 1\nchekpoint: {}\n", 2, 1, "no key 'chekpoint'"),
        ("version: 2\nwhatever: 1\n", 1, 1, "format version 2"),
        ("checkpoint: {rules: [{}], target: /a}\n", 1, 1, "requires 'version'"),
        ("version: 1\nversion: 1\n", 2, 1, "duplicate key 'version'"),
        ("version: 1\ncheckpoint: [1\n", 3, 1, "invalid YAML"),
        ("version: 1\ncheckpoint: &a {rules: [*a]}\n", 2, 13, "cycles are not allowed"),
        ("version: 1\nfailover: !!python/object:os.system [x]\n", 2, 11, "is not supported"),
        ("version: 1\n---\nversion: 1\n", 2, 1, "invalid YAML"),
        ("version: 1\nfailover:\n  - {on: lost, do: [fail]}\n", 3, 10, "one of object_lost"),
        ("version: 1\nfailover:\n  - {on: task_failed, do: []}\n", 3, 27, "at least one item"),
        ("version: 1\nfailover:\n  - {on: task_failed, do: [evict]}\n", 3, 5, "evict cannot handle task_failed"),
        ("version: 1\nfailover:\n  - {on: task_failed, do: [fail, retry]}\n", 3, 5, "after 'fail'"),
        ("version: 1\nfailover:\n  - {on: object_lost, do: [reload_checkpoint]}\n", 3, 5, "has no effect"),
        ("version: 1\nfailover:\n  - {on: task_failed, do: [retry, retry]}\n", 3, 5, "listed twice"),
        ("version: 1\ncheckpoint: {target: /a, rules: [{every: 0}]}\n", 2, 42, "a whole number from 1"),
        ("version: 1\ncheckpoint: {target: /a, rules: [{every: '3'}]}\n", 2, 42, "got '3'"),
        ("version: 1\ncheckpoint: {target: /a, rules: [{match: 12}]}\n", 2, 42, "put it in quotes"),
        ("version: 1\ncheckpoint: {rules: [{match: a}]}\n", 2, 22, "has no target"),
        ("version: 1\ncheckpoint: {target: deep, rules: [{match: a}]}\n", 2, 14, "unknown target 'deep'"),
        ("version: 1\ncheckpoint: {target: data/x, rules: [{}]}\n", 2, 14, "neither an absolute path nor a URL"),
        ("version: 1\ncheckpoint: {target: '/a/{rnu}', rules: [{}]}\n", 2, 14, "unknown placeholder {rnu}"),
        ("version: 1\ncheckpoint: {target: '/a/{run', rules: [{}]}\n", 2, 14, "unbalanced braces"),
        ("version: 1\ncheckpoint: {target: '/{run}', rules: [{}]}\n", 2, 14, "must begin with a fixed folder"),
        ("version: 1\ncheckpoint: {target: 'gopher9://x/y', rules: [{}]}\n", 2, 14, "does not support the scheme"),
        ("version: 1\ncheckpoint: {target: 'memory://x', rules: [{}]}\n", 2, 14, "lost when it exits"),
        ("version: 1\ncheckpoint: {target: '/a/../b', rules: [{}]}\n", 2, 14, "contains '.' or '..'"),
        ("version: 1\ntargets: {a: {url: '${NO_SUCH_VARIABLE_HERE}/x'}}\n", 2, 15, "NO_SUCH_VARIABLE_HERE is not set"),
        ("version: 1\ntargets: {a: {url: /x, fallback: b}}\n", 2, 24, "unknown target 'b'"),
        (
            "version: 1\ntargets:\n  a: {url: /x, fallback: b}\n  b: {url: /y, fallback: a}\n",
            3,
            16,
            "form a cycle: a -> b -> a",
        ),
        ("version: 1\ncheckpoint: {target: /a, rules: [{when: {size: ['>2', '<1']}}]}\n", 2, 35, "no number satisfies"),
        ("version: 1\ncheckpoint: {target: /a, rules: [{when: never, keep: 2}]}\n", 2, 48, "contradicts 'keep'"),
        ("version: 1\ncheckpoint:\n  target: /a\n  rules: [{match: 'a*'}, {match: 'ab*'}]\n", 4, 26, "never applies"),
        (
            "version: 1\nfailover:\n  - {on: task_failed, do: [fail]}\n  - {on: task_failed, match: a, do: [retry]}\n",
            4,
            5,
            "never applies",
        ),
    ],
)
def test_problems_are_reported_with_line_and_column(text: str, line: int, column: int, message: str) -> None:
    reported = problems(text)
    assert [(problem[0], problem[1]) for problem in reported if message in problem[2]] == [(line, column)], reported


def test_all_problems_are_reported_at_once() -> None:
    text = "version: 1\nnonsense: 1\ncheckpoint: {target: /a, rules: [{every: x}, {modes: sync}]}\nfailover: 3\n"
    assert [line for line, _, _ in problems(text)] == [2, 3, 3, 4]


@pytest.mark.parametrize(
    ("earlier", "later", "hidden"),
    [
        ("'*'", "x", True),
        ("'a*'", "'*a'", False),
        ("{task: 'a*', tag: t}", "{task: ab}", False),
        ("{task: 'a*'}", "{task: ab, tag: t}", True),
        ("{task: 'a*'}", "{task: [ab, b]}", False),
        ("{task: 'a?'}", "{task: ab}", True),
        ("{size: '>1'}", "{size: '>2'}", True),
        ("{size: '>2'}", "{size: '>1'}", False),
        ("{size: '>1'}", "{size: '>=1'}", False),
        ("{asset: '*'}", "'*'", False),
        ("{task: '*'}", "{asset: x}", True),
    ],
)
def test_rules_that_never_decide_are_found(earlier: str, later: str, hidden: bool) -> None:
    text = f"version: 1\ncheckpoint:\n  target: /a\n  rules:\n    - match: {earlier}\n    - match: {later}\n"
    if hidden:
        assert only(text)[0] == 6
    else:
        parse_policy(text, "p.yaml", {})


def test_the_environment_overrides_and_is_named_where_it_is_wrong() -> None:
    policy = parse_policy(
        GOOD,
        "p.yaml",
        {
            "ENTREPOT_POLICY__CHECKPOINT__QUEUE": "7",
            "ENTREPOT_POLICY__TARGETS__NEAR__URL": "/elsewhere",
            "ENTREPOT_POLICY__EVENTS__ENABLED": "false",
        },
    )
    assert (policy.queue, policy.targets["near"].template, policy.events.enabled) == (7, "/elsewhere", False)
    assert policy.digest != parse_policy(GOOD, "p.yaml", {}).digest
    for name, value, message in [
        ("ENTREPOT_POLICY__CHECKPOINT__QUEUE", "many", "whole number"),
        ("ENTREPOT_POLICY__CHECKPOINT__QEUE", "7", "no key 'qeue'"),
        ("ENTREPOT_POLICY__FAILOVER__ON", "x", "lists cannot be set"),
        ("ENTREPOT_POLICY__", "x", "lacks a key"),
    ]:
        with pytest.raises(PolicyError, match=message) as caught:
            parse_policy(GOOD, "p.yaml", {name: value})
        assert f"environment variable {name}" in str(caught.value)


def test_finding_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENTREPOT_POLICY", raising=False)
    assert find_policy() is None
    file = tmp_path / "entrepot.yaml"
    file.write_text("version: 1\n")
    monkeypatch.setenv("ENTREPOT_POLICY", str(file))
    assert (policy := find_policy()) is not None
    assert policy.source == str(file)
    assert find_policy("off") is None
    with pytest.raises(InvalidArgument, match="cannot read the policy"):
        load_policy(tmp_path / "none.yaml")
    file.write_bytes(b"version: \xff")
    with pytest.raises(PolicyError, match="not UTF-8"):
        load_policy(file)


def test_bombs_are_refused() -> None:
    laughs = "version: 1\nx0: &x0 [1, 1]\n" + "".join(f"x{i}: &x{i} [*x{i - 1}, *x{i - 1}]\n" for i in range(1, 25))
    assert "has more than" in problems(laughs)[0][2]
    assert "nested" in problems("version: " + "[" * 40 + "]" * 40)[0][2]
    assert "nested" in problems("version: " + "[" * 5000 + "]" * 5000)[0][2]
    assert "bytes" in problems("#" * 300_000)[0][2]


def test_words_of_yaml_1_1_are_words() -> None:
    policy = parse_policy("version: 1\nfailover: [{on: task_failed, match: yes, do: retry}]", "p.yaml", {})
    assert policy.failover[0].match.globs == {"task": ("yes",)}
