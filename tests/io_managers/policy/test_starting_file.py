"""`entrepot policy new`: what it writes is a good policy, explained key by key, and names its schema for editors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from entrepot.cli import main
from entrepot_policy.explanation import explain
from entrepot_policy.rules.loader import load_policy, parse_policy
from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.schema.constants import OrchestratorName
from entrepot_policy.schema.published import SCHEMA_FILE, reference, schema_text
from entrepot_policy.schema.starting_file import ORCHESTRATORS, starting_file

KEY = re.compile(r"(?P<before> *(# *)?)(- )?(?P<key>[a-z_]+):( |$)")
each_orchestrator = pytest.mark.parametrize("orchestrator", ORCHESTRATORS)


def without_comment_signs(text: str) -> str:
    """All settings that are comments, put to use: as an editor's command does it, for each such line."""
    return "\n".join(
        line.replace("# ", "", 1) if KEY.match(line) and line.lstrip().startswith("#") else line
        for line in text.splitlines()
    )


@each_orchestrator
def test_it_loads_with_and_without_its_optional_settings(orchestrator: OrchestratorName, tmp_path: Path) -> None:
    file = tmp_path / "entrepot.yaml"
    assert main(["policy", "new", "--for", orchestrator, str(file)]) == 0
    policy = load_policy(file)
    assert (len(policy.checkpoints), len(policy.failover), len(policy.memory)) == (3, 3, 0)
    assert main(["policy", "check", str(file)]) == 0
    text = file.read_text()
    everything = parse_policy(without_comment_signs(text), "all", {})
    assert everything.memory
    assert everything.failover[0].max_tasks == 100
    assert everything.events.max_bytes == 16 << 20


@each_orchestrator
def test_each_key_is_explained_as_the_reference_does(orchestrator: OrchestratorName) -> None:
    lines = starting_file(orchestrator, "x").splitlines()
    meanings = {meaning for _, _, meaning in reference()}
    explained: set[str] = set()
    keys = 0
    for number, line in enumerate(lines):
        setting = KEY.match(line)
        if setting is None:
            continue
        keys += 1
        comment: list[str] = []
        for above in reversed(lines[:number]):
            if KEY.match(above) or not above.lstrip().startswith("#"):
                break
            comment.insert(0, above.replace("#", "").strip())
        if comment:
            explained.add(setting["key"])
            meaning = re.sub(r"( \(default: .*\))?\.$", "", " ".join(comment))
            assert meaning[0].lower() + meaning[1:] in meanings, (line, comment)
        assert setting["key"] in explained, line
    assert keys > 20
    assert max(map(len, lines)) <= 100


@each_orchestrator
def test_its_schema_accepts_it(orchestrator: OrchestratorName, tmp_path: Path) -> None:
    file = tmp_path / "entrepot.yaml"
    assert main(["policy", "new", "--for", orchestrator, str(file)]) == 0
    first = file.read_text().splitlines()[0]
    location = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert location is not None
    schema = json.loads((file.parent / location[1]).read_text())
    assert schema == json.loads(schema_text())
    document = yaml.safe_load(re.sub(r"\bon:", "'on':", file.read_text()))  # PyYAML reads YAML 1.1, where it is true
    jsonschema.Draft202012Validator(schema).validate(document)
    document["checkpoint"]["rules"][0]["whenn"] = "never"
    assert not jsonschema.Draft202012Validator(schema).is_valid(document)


@pytest.mark.parametrize(
    ("orchestrator", "subject"),
    [
        ("airflow", Subject(Task("airflow", "dag", "r", "train_a"), key="k")),
        ("dagster", Subject(Task("dagster", "job", "r", "step"), key="k", asset="models/tree")),
        ("kedro", Subject(Task("kedro", "__default__", "r", "node"), key="k", dataset="model_a")),
    ],
)
def test_its_example_matches_as_the_orchestrator_names_things(orchestrator: OrchestratorName, subject: Subject) -> None:
    policy = parse_policy(starting_file(orchestrator, "x"), "p", {})
    assert any("checkpoint: always" in line for line in explain(policy, subject))


def test_without_a_file_it_is_printed_and_names_the_shipped_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "schema", "--path"]) == 0
    shipped = Path(capsys.readouterr().out.strip())
    assert shipped.read_text(encoding="utf-8") == schema_text()
    assert main(["policy", "new", "--for", "kedro", "--target", "s3://it's/{run}"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"# yaml-language-server: $schema={shipped}\n")
    (target,) = parse_policy(text, "p", {}).all_targets()
    assert target.template == "s3://it's/{run}"


def test_a_location_with_blanks_is_written_as_one_word() -> None:
    assert starting_file("kedro", "/a b/c").startswith("# yaml-language-server: $schema=/a%20b/c\n")


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, schema = tmp_path / "entrepot.yaml", tmp_path / SCHEMA_FILE
    command = ["policy", "new", "--for", "airflow", str(file)]
    file.write_text("mine")
    assert main(command) == 1
    assert f"{file} exists and is left as it is" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert not schema.exists()

    file.unlink()
    schema.write_text('{"$id": "urn:example:mine"}')
    assert main(command) == 1
    assert f"{schema} is not the schema of a policy" in capsys.readouterr().err
    assert schema.read_text() == '{"$id": "urn:example:mine"}'
    assert not file.exists(), "a policy without its schema would be half of the work"

    schema.write_text('{"$id": "urn:entrepot:policy:0"}')
    assert main(command) == 0
    assert schema.read_text(encoding="utf-8") == schema_text(), "an older schema is brought up to date"
    assert main([*command[:-1], str(tmp_path / "second.yaml")]) == 0
    assert SCHEMA_FILE not in capsys.readouterr().out.splitlines()[-1]


def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "entrepot.yaml"
    assert main(["policy", "new", "--for", "airflow", "--target", "relative/{run}", str(file)]) == 1
    assert "'relative/{run}' is neither an absolute path nor a URL" in capsys.readouterr().err
    assert main(["policy", "new", "--for", "airflow", str(tmp_path / "no" / "such.yaml")]) == 1
    assert "cannot write" in capsys.readouterr().err
    assert main(["policy", "new", "--for", "airflow", str(tmp_path / SCHEMA_FILE)]) == 1
    assert "choose another" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SystemExit, match="2"):
        main(["policy", "new", str(file)])
    assert "--for" in capsys.readouterr().err
