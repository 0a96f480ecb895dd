"""The Containerfile, as far as it can be checked without building it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "operator" / "Containerfile").read_text()


def steps() -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n\s*", " ", "\n".join(line for line in TEXT.splitlines() if not line.startswith("#")))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined.splitlines() if line.strip()]


def test_there_are_two_stages_and_only_the_first_builds() -> None:
    names = [argument for name, argument in steps() if name == "FROM"]
    assert names == ["debian:bookworm-slim AS build", "debian:bookworm-slim"]
    last = steps()[max(place for place, step in enumerate(steps()) if step[0] == "FROM") :]
    assert not any("pip" in argument for name, argument in last if name == "RUN")
    assert [argument for name, argument in last if name == "COPY"] == ["--from=build /opt/entrepot /opt/entrepot"]


def test_it_runs_as_a_user_without_rights_by_number() -> None:
    users = [argument for name, argument in steps() if name == "USER"]
    assert users == ["65532:65532"]
    deployment = (ROOT / "operator/entrepot_operator/manifests/operator/deployment.yaml").read_text()
    assert "runAsUser: 65532" in deployment
    order = [name for name, _ in steps()]
    assert order.index("USER") > max(place for place, name in enumerate(order) if name == "RUN")


def test_it_fetches_nothing_by_itself_and_leaves_no_lists() -> None:
    assert not any(name == "ADD" for name, _ in steps())
    assert "http" not in TEXT
    for name, argument in steps():
        if name == "RUN" and "apt-get install" in argument:
            assert argument.startswith("apt-get update")
            assert "--no-install-recommends" in argument
            assert "rm -rf /var/lib/apt/lists/*" in argument


def test_the_extras_and_commands_are_those_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    extras = re.search(r"\[([a-z0-9,]+)\]", TEXT)
    assert extras is not None
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
    assert ("ENTRYPOINT", '["entrepot"]') in steps()
    assert re.search(r"^entrepot = ", project, re.MULTILINE)


def test_only_the_wheels_are_sent_to_the_engine() -> None:
    assert (ROOT / "operator" / "Containerfile.dockerignore").read_text().split() == ["*", "!dist"]
