"""Manifests keep their comments, order and quotes."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from entrepot import InvalidArgument
from entrepot_operator.placement import inject_document
from entrepot_operator.placement.formats import manifests, yaml_patch
from hypothesis import given, settings
from hypothesis import strategies as st

A = "aa" * 20
LOCATIONS = {A: {"on": 10, "1e3": 4}}

JOB = """\
# A job.
apiVersion: batch/v1   # stable
kind: Job
metadata:
  name: train  # the name
spec:
  backoffLimit: 0  # none

  # The template.
  template:
    spec:
      # All containers.
      containers:
      - name: main # the main one
        image: "x:1"   # pinned
        args: ["a", 'b']
        env:
        - name: A
          value: "1"  # one
        # The end of env.
      # What follows a failure.
      restartPolicy: Never
# The end.
"""


def injected(text: str, form: manifests.Syntax | None = None, required: list[str] | None = None) -> str:
    manifest = manifests.parse(text, "test.yaml")
    for part in manifest.parts:
        done = inject_document(part.content, LOCATIONS, required=required)
        if done.pods:
            part.changed = done.content
    return manifests.serialize([manifest], form)


def test_every_line_stays_in_its_order() -> None:
    output_lines = injected(JOB, required=[A]).splitlines()
    places = [output_lines.index(line) for line in JOB.splitlines()]
    assert places == sorted(places)
    assert output_lines[-1] == "# The end."
    after = output_lines[output_lines.index("        # The end of env.") + 1]
    assert after == "      # What follows a failure."


def test_the_result_means_what_inject_says() -> None:
    expected = inject_document(yaml.safe_load(JOB), LOCATIONS, required=[A]).content
    output = injected(JOB, required=[A])
    assert yaml.safe_load(output) == expected
    assert json.loads(injected(JOB, "json", required=[A])) == expected


def test_twice_is_once_to_the_letter() -> None:
    once = injected(JOB, required=[A])
    assert injected(once) == once


def test_documents_without_pods_stay_to_the_letter() -> None:
    odd = "# only a comment\n---   # a separator\nkind:    Service\nports: [ 1,2 ]\nmode:   0644\n"
    assert injected(odd) == odd
    both = odd + "---\n" + JOB + "---\n# the end\n"
    output = injected(both)
    assert output.startswith(odd + "---\n# A job.\n")
    assert output.endswith("# The end.\n---\n# the end\n")


@pytest.mark.parametrize(("mapping", "sequence"), [(2, 0), (2, 2), (4, 4), (4, 0)])
def test_indentation_is_that_of_the_document(mapping: int, sequence: int) -> None:
    indent, dash = " " * mapping, " " * sequence
    text = (
        f"kind: Pod\nspec:\n{indent}containers:\n{indent}{dash}- name: a\n"
        f"{indent}{dash}  env:\n{indent}{dash}  {dash}- name: X\n"
    )
    output = injected(text)
    places = [output.index(line) for line in text.splitlines(keepends=True)]
    assert places == sorted(places)
    assert f"\n{indent}{dash}- name: entrepot-socket\n" in output


def test_aliases_and_merge_keys_are_not_changed_elsewhere() -> None:
    text = """\
kind: Pod
spec:
  containers:  # all of them
  - &base
    name: a
    env: &env
    - name: X
      value: x  # of all
    resources: {limits: {cpu: 1}}
  - <<: *base
    name: b  # the second
    env: *env
  - <<: *base
    name: c
"""
    expected = inject_document(yaml.safe_load(text), LOCATIONS).content
    output = injected(text)
    assert yaml.safe_load(output) == expected
    assert injected(output) == output
    assert all(comment in output for comment in ("  # all of them\n", "  # of all\n", "  # the second\n"))


def test_an_alias_of_what_changes_keeps_what_it_was() -> None:
    text = "env: &env  # shared\n- name: X  # kept\nkind: Pod\nspec:\n  containers:\n  - name: a\n    env: *env\n"
    output = injected(text)
    assert "# kept" in output
    assert yaml.safe_load(output)["env"] == [{"name": "X"}]
    assert len(yaml.safe_load(output)["spec"]["containers"][0]["env"]) == 3


@pytest.mark.parametrize(
    "env",
    [
        "    env:\n    # Above A.\n    - name: A\n",
        "    env:  # beside\n    # Above A.\n    - name: A\n",
        "    env:\n    # Above A.\n\n    # More.\n    - name: A\n",
    ],
)
def test_what_stands_above_a_variable_stays_above_it(env: str) -> None:
    output = injected(f"kind: Pod\nspec:\n  containers:\n  - name: a\n{env}")
    above = env.partition("\n")[2]
    assert above in output
    assert env.partition("\n")[0] in output
    assert output.index("ENTREPOT_NODE") < output.index(above)
    assert injected(output) == output


def test_crlf_stays() -> None:
    output = injected(JOB.replace("\n", "\r\n"))
    assert output.count("\n") == output.count("\r\n")


def test_numbers_and_words_are_those_of_kubernetes() -> None:
    text = "kind: Pod\nspec: {hostNetwork: yes, defaultMode: 0644, x: 0o17, y: 0x1F, d: 2024-01-02, q: 'yes', f: 1.5}\n"
    content = manifests.parse(text, "x").parts[0].content
    assert content["spec"] == {
        "hostNetwork": True,
        "defaultMode": 0o644,
        "x": 15,
        "y": 31,
        "d": "2024-01-02",
        "q": "yes",
        "f": 1.5,
    }
    assert "defaultMode: 0644" in injected(text.replace("hostNetwork", "containers: [{name: a}], hostNetwork"))


def test_texts_that_look_like_something_else_are_quoted() -> None:
    output = injected("kind: Pod\nspec:\n  containers:\n  - name: a\n", required=[A])
    assert 'values: ["on"]' in output
    assert 'values: ["1e3"]' in output


@settings(deadline=None)
@given(
    st.recursive(
        st.sampled_from(["x", "on", "1", "", "~", "- a", "a: b", "#", "null", "{", "é"])
        | st.booleans()
        | st.none()
        | st.integers(-99, 99),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
        max_leaves=12,
    ),
    st.recursive(
        st.sampled_from(["x", "y", "on"]) | st.integers(0, 3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
        max_leaves=12,
    ),
)
def test_any_tree_can_be_changed_into_any_other(before: Any, after: Any) -> None:
    text = yaml.safe_dump({"k": before, "l": before}, sort_keys=False, allow_unicode=True)
    part = manifests.parse(text, "x").parts[0]
    part.changed = {"k": after, "m": after, "l": before}
    written = manifests.serialize([manifests.Manifest("x", "yaml", [part])], None)
    assert manifests.parse(written, "x").parts[0].content == part.changed


def test_several_documents_as_json_are_a_list() -> None:
    parsed = json.loads(injected(f"{JOB}---\nkind: Service\n", "json"))
    assert (parsed["kind"], [document["kind"] for document in parsed["items"]]) == ("List", ["Job", "Service"])


def test_json_comes_back_as_json_and_can_become_yaml() -> None:
    text = json.dumps(yaml.safe_load(JOB))
    assert json.loads(injected(text)) == json.loads(injected(JOB, "json"))
    assert yaml.safe_load(injected(text, "yaml")) == json.loads(injected(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b\nc: [1,\n", "test.yaml, line 3"),
        ("a: b\n---\na: 1\na: 2\n", "test.yaml, line 4"),
        ("a: !Ref x\n", "!Ref"),
        ("1: x\n", "keys"),
        ("a: *nobody\n", "nobody"),
        ("\x00", "test.yaml"),
        ("a: b\n--- {c: d}\n", "test.yaml"),
        ("a: 2024-99-99\n", "test.yaml"),
        (f"a: {'[' * 150}{']' * 150}\n", "nested"),
        ("[" * 800, "RecursionError"),
        ("a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)), "at most"),
    ],
)
def test_what_is_no_yaml(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message.replace("!", ".")):
        manifests.parse(text, "test.yaml")


def test_without_ruamel_json_works_and_yaml_says_what_is_missing(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['ruamel'] = None\nsys.modules['ruamel.yaml'] = None\n"
        "from entrepot_operator.placement.formats import manifests\n"
        "assert manifests.parse('{\"a\": 1}', 'x').parts[0].content == {'a': 1}\n"
        "try:\n    manifests.parse('a: 1', 'x')\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("InvalidArgument"), done.stderr
    assert "entrepot[inject]" in done.stdout


@settings(deadline=None, max_examples=300)
@given(st.text("ab:- \n#&*!|>'\"{}[],?%@`0.<~\t", max_size=40))
def test_any_text_is_read_or_a_typed_error(text: str) -> None:
    with contextlib.suppress(InvalidArgument):
        manifest = manifests.parse(text, "x")
        assert manifests.serialize([manifest], "yaml" if manifest.form == "yaml" else None) == text or text[:1] in "{["


def test_trees_of_something_else() -> None:
    with pytest.raises(InvalidArgument, match="set"):
        yaml_patch.to_plain({1, 2})


PLAIN = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: main
        env:
        - name: A
          value: "1"
        args:
        - x
      - name: other
      volumes:
      - name: v
        emptyDir: {}
  replicas: 2
""".splitlines()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=len(PLAIN), max_size=len(PLAIN)))
def test_no_comment_is_lost_wherever_it_stands(where: list[tuple[bool, bool]]) -> None:
    lines: list[str] = []
    comments: list[str] = []
    for place, (line, (above, beside)) in enumerate(zip(PLAIN, where, strict=True)):
        if above:
            lines.append(f"{' ' * (len(line) - len(line.lstrip()))}# above {place}.")
            comments.append(f"# above {place}.")
        lines.append(f"{line}  # beside {place}." if beside else line)
        comments += [f"# beside {place}."] if beside else []
    output = injected("\n".join(lines) + "\n", required=[A])
    assert yaml.safe_load(output) == inject_document(yaml.safe_load("\n".join(PLAIN)), LOCATIONS, required=[A]).content
    assert re.findall(r"# \w+ \d+\.", output) == comments
    assert injected(output) == output
