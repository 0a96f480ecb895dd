"""``entrepot completion``: what real shells make of its scripts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from entrepot.cli import main

shtab = pytest.importorskip("shtab", reason="shtab is not installed")
# A shell in a pseudo-terminal, as its completion needs a line editor: waits for what it shows, up to half a minute.
ZSH = r"""
zmodload zsh/zpty
zpty -b shell zsh -f
zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; bindkey '^I' complete-word; print -r is:ready"
zpty -r -m shell shown $'*\nis:ready*'
zpty -n -w shell $'entrepot pref\t'
zpty -r -m shell shown '*entrepot pref*etch*'
print -r -- $shown
"""


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(shell) is None, reason=f"there is no {shell} on this machine: apt-get install {shell}"
    )


def ask(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script for a shell, named as zsh wants it."""
    assert main(["completion", request.param]) == 0
    path = tmp_path / "_entrepot"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize("script", ["bash", "zsh", "fish", "tcsh"], indirect=True)
def test_scripts_know_commands_and_options(script: Path, request: pytest.FixtureRequest) -> None:
    text = script.read_text()
    assert "prefetch" in text
    assert "physical" in text or "tcsh" in request.node.name  # shtab completes no options in tcsh


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_with_it(script: Path) -> None:
    asked = (
        f"source {script}; COMP_WORDS=(entrepot pref); COMP_CWORD=1; "
        "$(complete -p entrepot | sed 's/.*-F \\([^ ]*\\).*/\\1/') entrepot pref entrepot; echo ${COMPREPLY[@]}"
    )
    assert ask("bash", "-c", asked).split() == ["prefetch"]


@needs("zsh")
@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_completes_with_it(script: Path) -> None:
    assert "prefetch" in ask("zsh", "-f", "-c", ZSH, "zsh", str(script.parent)).replace("\b", "")


@needs("fish")
@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_completes_with_it(script: Path) -> None:
    printed = ask(
        "fish", "--no-config", "-c", f"source {script}; complete -C 'entrepot pref'; complete -C 'entrepot ls --phy'"
    )
    assert [line.split("\t")[0] for line in printed.splitlines()] == ["prefetch", "--physical"]


def test_a_shell_that_the_installed_shtab_does_not_know(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shtab, "SUPPORTED_SHELLS", ["bash", "zsh", "tcsh"])
    assert main(["completion", "fish"]) == 1
    assert "has no completion for fish: pip install --upgrade shtab" in capsys.readouterr().err
