"""The models of a policy file: their defaults, and errors that lead to the place in the file."""

from __future__ import annotations

import subprocess
import sys

import pytest
from entrepot_policy.rules.loader import parse_policy
from entrepot_policy.rules.model import CheckpointRule, EventSettings, FailoverRule, Policy, Step
from entrepot_policy.schema.diagnostics import PolicyError


def problems(text: str, **environment: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "p", environment)
    return caught.value.message.splitlines()


def test_what_is_omitted_has_the_same_default_in_the_file_and_in_the_rules() -> None:
    text = "version: 1\ncheckpoint: {target: /a, rules: [{}]}\nfailover: [{on: task_failed, do: [retry, fail]}]"
    read = parse_policy(text, "p", {})
    assert read == Policy(
        "p", read.digest, {}, read.checkpoints, read.failover, events=EventSettings(), memory=(), overhead=None
    )
    (rule,) = read.checkpoints
    assert rule == CheckpointRule(rule.location, rule.match, 1, rule.when, "sync", None, rule.targets)
    (failover,) = read.failover
    assert failover == FailoverRule(failover.location, ("task_failed",), failover.match, (Step("retry"), Step("fail")))
    (retry,) = parse_policy("version: 1\nfailover: [{on: task_failed, do: {retry: {}}}]", "p", {}).failover[0].steps
    assert retry == Step("retry")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", ["p:1:1: got a list, expected a policy: a mapping with version, targets, checkpoint, memory, "]),
        ("other: 1\n", ["p:1:1: a policy has no key 'other'; known keys: ", "p:1:1: a policy requires 'version'"]),
        ("version: 1\ncheckpoint:\n", ["p:2:12: got nothing, expected checkpoint: a mapping with enabled, target, "]),
        ("version: 1\nevents: {enabled: yes}", ["p:2:19: got 'yes', expected true or false"]),
        ("version: 1\nevents: {folder: x}", ["p:2:18: got 'x', expected an absolute path"]),
        ("version: 1\nevents: {max_bytes: 1 MB per day}", ["p:2:21: got '1 MB per day', expected a number of bytes, "]),
        ("version: 1\ntargets: []", ["p:2:10: got a list, expected a mapping"]),
        ("version: 1\nfailover: {on: task_failed, do: fail}", ["p:2:11: got a mapping, expected a list"]),
        # Names that are also keys, or words by which the reader tells types apart.
        ("version: 1\ntargets: {url: {url: 3}}", ["p:2:22: got 3, expected a URL; YAML does not read this as a "]),
        (
            "version: 1\ntargets: {section: {uri: /x, url: /x}}",
            ["p:2:21: a target has no key 'uri'; did you mean 'url'? Known keys: "],
        ),
        ("version: 1\ntargets: {scalar: 3}", ["p:2:19: got 3, expected a target: a mapping with url, options, "]),
        (
            "version: 1\ntargets: {'[key]': {url: ''}}",
            ["p:2:11: '[key]' cannot be the name of a target: it must match ", "p:2:26: got '', expected a URL, such "],
        ),
        (
            "version: 1\nmemory: {rules: [{match: {section: x, size: '1'}}]}",
            [
                "p:2:18: a rule of 'memory' requires 'recompute': auto: ",
                "p:2:27: a match has no key 'section'; known keys: orchestrator, ",
                "p:2:45: got '1', expected a comparison with a number of bytes, such as '>64MiB'",
            ],
        ),
        (
            "version: 1\nfailover: [{on: x, do: {retry: {factor: 0.5}, fail: {}}}]",
            [
                "p:2:17: got 'x', expected one of object_lost, ",
                "p:2:24: a step must have exactly one of retry, fail",
                "p:2:41: got 0.5, expected a number from 1 to 100",
                "p:2:53: fail requires 'reason': text of the error",
            ],
        ),
        (
            "version: 1\nfailover: [{on: task_failed, do: {}}, {on: task_failed, do: [{}]}]",
            ["p:2:34: a step must have exactly one of ", "p:2:62: a step must have exactly one of "],
        ),
        ("version: 1\ncheckpoint: {rules: [{when: {size: [1]}}]}", ["p:2:37: got 1, expected a comparison with a "]),
        (f"version: 1\nmemory: {{recompute: {'a' * 80}}}", [f"p:2:21: got '{'a' * 59}..., expected one of auto, "]),
    ],
)  # fmt: skip
def test_errors_lead_to_what_is_wrong(text: str, expected: list[str]) -> None:
    reported = problems(text)
    assert len(reported) == len(expected), reported
    for line, start in zip(reported, expected, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # the rules that are sound are checked, and the broken one hides none of them
            "version: 1\nnope: 2\ncheckpoint: {target: '/x/{color}/{day}', rules: [{mach: a}, {match: b}, {match: b}]}",
            [
                "p:2:1: a policy has no key 'nope'; known keys: ",
                "p:3:14: unknown placeholder {color}, {day}; known placeholders: ",
                "p:3:51: a rule of 'checkpoint' has no key 'mach'; did you mean 'match'? Known keys: ",
                "p:3:73: this rule never applies: ",
            ],
        ),
        (  # what may follow from a problem is not reported
            "version: 1\ntarget: {s3: {url: /x}}\ncheckpoint: {target: s3, rules: [{}]}",
            ["p:2:1: a policy has no key 'target'; did you mean 'targets'? "],
        ),
        (
            "version: 1\ntargets: {a: {uri: /x}}\ncheckpoint: {target: a, rules: [{}]}",
            ["p:2:14: a target requires", "p:2:15: "],
        ),
        (
            "version: 1\ncheckpoint: {tagret: /x, rules: [{}]}",
            ["p:2:14: checkpoint has no key 'tagret'; did you mean 'target'? "],
        ),
        (
            "version: 1\ncheckpoint: {target: /x, rules: [{when: 3}]}\n"
            "failover: [{on: object_lost, do: reload_checkpoint}]",
            ["p:2:41: got 3, expected "],
        ),
        (
            "version: 1\nfailover: [{on: object_dropped, do: x}, {on: object_dropped, do: reload_checkpoint}]\n"
            "memory: {recompute: auto}\ncheckpoint: {target: /x, rules: [{}]}",
            ["p:2:37: got 'x', expected one of "],
        ),
        ("checkpoint: {target: x, rules: [{}]}", ["p:1:1: a policy requires 'version'", "p:1:14: unknown target 'x'"]),
        ("version: 1\ncheckpoint: {target: x}", ["p:2:13: checkpoint requires 'rules'"]),
    ],
)  # fmt: skip
def test_what_is_sound_is_checked_beside_what_is_not(text: str, expected: list[str]) -> None:
    reported = problems(text)
    assert len(reported) == len(expected), reported
    for line, start in zip(reported, expected, strict=True):
        assert line.startswith(start), reported


def test_escaped_characters_are_put_together_from_their_surrogates() -> None:
    text = 'version: 1\nfailover: [{on: task_failed, do: {fail: {reason: "\\ud83d\\ude00"}}}]'
    assert parse_policy(text, "p", {}).failover[0].steps[0].reason == "\U0001f600"


def test_what_is_not_unicode_is_refused_with_its_place() -> None:
    reason = 'version: 1\nfailover: [{on: task_failed, do: {fail: {reason: "\\ud83d"}}}]'
    assert problems(reason) == [r"p:2:50: '\ud83d' is not valid Unicode"]
    assert problems('version: 1\n"\\udc00": 1') == [r"p:2:1: '\udc00' is not valid Unicode"]
    undecodable = b"/data/\xff".decode(errors="surrogateescape")
    assert problems("version: 1", ENTREPOT_POLICY__EVENTS__FOLDER=undecodable) == [
        r"environment variable ENTREPOT_POLICY__EVENTS__FOLDER: '/data/\udcff' is not valid Unicode"
    ]


@pytest.mark.parametrize(("hidden", "name"), [("yaml", "PyYAML"), ("pydantic", "pydantic")])
def test_a_package_that_is_not_installed(hidden: str, name: str) -> None:
    code = (
        f"import sys; sys.modules[{hidden!r}] = None\n"
        "from entrepot_policy import parse_policy\nfrom entrepot import InvalidArgument\n"
        "try: parse_policy('version: 1', 'p.yaml', {})\nexcept InvalidArgument as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"the policy p.yaml requires {name}" in done.stdout
    assert "pip install 'entrepot[policy]'" in done.stdout
