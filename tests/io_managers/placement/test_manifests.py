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
from entrepot_io.placement import inject_document, manifests, trees
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


def injected(text: str, form: manifests.Form | None = None, required: list[str] | None = None) -> str:
    manifest = manifests.read(text, "test.yaml")
    for part in manifest.parts:
        done = inject_document(part.content, LOCATIONS, required=required)
        if done.pods:
            part.changed = done.content
    return manifests.write([manifest], form)


def test_every_line_stays_in_its_order() -> None:
    made = injected(JOB, required=[A]).splitlines()
    places = [made.index(line) for line in JOB.splitlines()]
    assert places == sorted(places)
    assert made[-1] == "# The end."
    after = made[made.index("        # The end of env.") + 1]
    assert after == "      # What follows a failure."


def test_the_result_means_what_inject_says() -> None:
    expected = inject_document(yaml.safe_load(JOB), LOCATIONS, required=[A]).content
    made = injected(JOB, required=[A])
    assert yaml.safe_load(made) == expected
    assert json.loads(injected(JOB, "json", required=[A])) == expected


def test_twice_is_once_to_the_letter() -> None:
    once = injected(JOB, required=[A])
    assert injected(once) == once


def test_documents_without_pods_stay_to_the_letter() -> None:
    odd = "# only a comment\n---   # a separator\nkind:    Service\nports: [ 1,2 ]\nmode:   0644\n"
    assert injected(odd) == odd
    both = odd + "---\n" + JOB + "---\n# the end\n"
    made = injected(both)
    assert made.startswith(odd + "---\n# A job.\n")
    assert made.endswith("# The end.\n---\n# the end\n")


@pytest.mark.parametrize(("mapping", "sequence"), [(2, 0), (2, 2), (4, 4), (4, 0)])
def test_indentation_is_that_of_the_document(mapping: int, sequence: int) -> None:
    one, dash = " " * mapping, " " * sequence
    text = (
        f"kind: Pod\nspec:\n{one}containers:\n{one}{dash}- name: a\n{one}{dash}  env:\n{one}{dash}  {dash}- name: X\n"
    )
    made = injected(text)
    places = [made.index(line) for line in text.splitlines(keepends=True)]
    assert places == sorted(places)
    assert f"\n{one}{dash}- name: entrepot-socket\n" in made


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
    made = injected(text)
    assert yaml.safe_load(made) == expected
    assert injected(made) == made
    assert all(comment in made for comment in ("  # all of them\n", "  # of all\n", "  # the second\n"))


def test_an_alias_of_what_changes_keeps_what_it_was() -> None:
    text = "env: &env  # shared\n- name: X  # kept\nkind: Pod\nspec:\n  containers:\n  - name: a\n    env: *env\n"
    made = injected(text)
    assert "# kept" in made
    assert yaml.safe_load(made)["env"] == [{"name": "X"}]
    assert len(yaml.safe_load(made)["spec"]["containers"][0]["env"]) == 3


@pytest.mark.parametrize(
    "env",
    [
        "    env:\n    # Above A.\n    - name: A\n",
        "    env:  # beside\n    # Above A.\n    - name: A\n",
        "    env:\n    # Above A.\n\n    # More.\n    - name: A\n",
    ],
)
def test_what_stands_above_a_variable_stays_above_it(env: str) -> None:
    made = injected(f"kind: Pod\nspec:\n  containers:\n  - name: a\n{env}")
    above = env.partition("\n")[2]
    assert above in made
    assert env.partition("\n")[0] in made
    assert made.index("ENTREPOT_NODE") < made.index(above)
    assert injected(made) == made


def test_crlf_stays() -> None:
    made = injected(JOB.replace("\n", "\r\n"))
    assert made.count("\n") == made.count("\r\n")


def test_numbers_and_words_are_those_of_kubernetes() -> None:
    text = "kind: Pod\nspec: {hostNetwork: yes, defaultMode: 0644, x: 0o17, y: 0x1F, d: 2024-01-02, q: 'yes', f: 1.5}\n"
    content = manifests.read(text, "x").parts[0].content
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
    made = injected("kind: Pod\nspec:\n  containers:\n  - name: a\n", required=[A])
    assert 'values: ["on"]' in made
    assert 'values: ["1e3"]' in made


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
def test_any_tree_becomes_what_it_is_told(before: Any, after: Any) -> None:
    text = yaml.safe_dump({"k": before, "l": before}, sort_keys=False, allow_unicode=True)
    part = manifests.read(text, "x").parts[0]
    part.changed = {"k": after, "m": after, "l": before}
    made = manifests.write([manifests.Manifest("x", "yaml", [part])], None)
    assert manifests.read(made, "x").parts[0].content == part.changed


def test_several_documents_as_json_are_a_list() -> None:
    made = json.loads(injected(f"{JOB}---\nkind: Service\n", "json"))
    assert (made["kind"], [one["kind"] for one in made["items"]]) == ("List", ["Job", "Service"])


def test_json_comes_back_as_json_and_can_become_yaml() -> None:
    text = json.dumps(yaml.safe_load(JOB))
    assert json.loads(injected(text)) == json.loads(injected(JOB, "json"))
    assert yaml.safe_load(injected(text, "yaml")) == json.loads(injected(text))


@pytest.mark.parametrize(
    ("text", "said"),
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
        ("[" * 1500, "test.yaml"),
        ("a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)), "at most"),
    ],
)
def test_what_is_no_yaml(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said.replace("!", ".")):
        manifests.read(text, "test.yaml")


def test_without_ruamel_json_works_and_yaml_says_what_is_missing(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['ruamel'] = None\nsys.modules['ruamel.yaml'] = None\n"
        "from entrepot_io.placement import manifests\n"
        "assert manifests.read('{\"a\": 1}', 'x').parts[0].content == {'a': 1}\n"
        "try:\n    manifests.read('a: 1', 'x')\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("InvalidArgument"), done.stderr
    assert "entrepot[inject]" in done.stdout


@settings(deadline=None, max_examples=300)
@given(st.text("ab:- \n#&*!|>'\"{}[],?%@`0.<~\t", max_size=40))
def test_any_text_is_read_or_a_typed_error(text: str) -> None:
    with contextlib.suppress(InvalidArgument):
        manifest = manifests.read(text, "x")
        assert manifests.write([manifest], "yaml" if manifest.form == "yaml" else None) == text or text[:1] in "{["


def test_trees_of_something_else() -> None:
    with pytest.raises(InvalidArgument, match="set"):
        trees.plain({1, 2})


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
    wanted: list[str] = []
    for place, (line, (above, beside)) in enumerate(zip(PLAIN, where, strict=True)):
        if above:
            lines.append(f"{' ' * (len(line) - len(line.lstrip()))}# above {place}.")
            wanted.append(f"# above {place}.")
        lines.append(f"{line}  # beside {place}." if beside else line)
        wanted += [f"# beside {place}."] if beside else []
    made = injected("\n".join(lines) + "\n", required=[A])
    assert yaml.safe_load(made) == inject_document(yaml.safe_load("\n".join(PLAIN)), LOCATIONS, required=[A]).content
    assert re.findall(r"# \w+ \d+\.", made) == wanted
    assert injected(made) == made
