"""``entrepot start`` where a store runs already, and the durations and sizes that the command line takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from entrepot._daemon import launcher, settings, units
from entrepot.cli import main
from entrepot.errors import InvalidArgument

Start = Callable[..., tuple[int, str]]


@pytest.fixture
def start(socket_folder: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Start]:
    """``start("--size", "64MiB")``: the exit code of ``entrepot start``, and what it prints."""
    address = f"unix://{socket_folder}/store.sock"

    def run(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["start", "--address", address, *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.err if code else captured.out

    yield run
    for pid in launcher.listening_pids(address):
        assert launcher.stop(pid)


def test_the_options_of_a_start_must_be_those_of_the_running_store(start: Start, socket_folder: Path) -> None:
    config = socket_folder / "config"
    config.write_text("spill-path = none\n")
    other = socket_folder / "other"
    other.write_text("")
    log = socket_folder / "own.log"
    given = ["--size", "64MiB", "--idle-exit", "15min", "--log-file", log, "--config", config]
    assert start(*given)[0] == 0
    assert start()[0] == 0
    for same in (given, ["--size", 64 << 20], ["--idle-exit", 900]):
        code, text = start(*same)
        assert (code, text.startswith("a store already listens at unix://")) == (0, True), text
    for option, value, explanation in (
        ("--size", "128MiB", "it has 64.0 MiB"),
        ("--idle-exit", "1h", "it has 15 min"),
        ("--log-file", socket_folder / "another.log", ""),
        ("--config", other, "it was not started with that file"),
    ):
        code, text = start(option, value)
        assert code == 1, option
        assert f"{option} " in text
        assert "was not applied" in text
        assert explanation in text
        assert "entrepot stop" in text
        assert text.count("was not applied") == 1


def test_a_store_started_without_options_has_the_defaults(start: Start) -> None:
    assert start("--size", "64MiB")[0] == 0
    assert start("--idle-exit", "0")[0] == 0
    code, text = start("--idle-exit", "1")
    assert (code, "it has 0 s" in text) == (1, True), text


def test_a_configuration_file_that_does_not_exist(start: Start) -> None:
    for _ in range(2):  # with and without a running store
        code, text = start("--config", "/nosuch")
        assert (code, "--config /nosuch: there is no such file" in text) == (1, True), text
        assert start("--size", "64MiB")[0] == 0


def test_the_idle_time_of_the_configuration_file_applies(
    start: Start, socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = socket_folder / "config"
    config.write_text("size = 64MiB\nidle-exit = 7d\nspill-path = none\n")
    monkeypatch.setenv("ENTREPOT_PRIVATE_SIZE", "128MiB")
    assert start("--config", config)[0] == 0
    assert start("--size", "64MiB", "--config", config)[0] == 0
    (keeper, *_) = launcher.listening_pids(f"unix://{socket_folder}/store.sock")
    assert "--idle-exit\x000" not in Path(f"/proc/{keeper}/cmdline").read_text()


def test_a_store_in_a_folder_that_does_not_exist(socket_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = socket_folder / "missing"
    assert main(["start", "--address", f"unix://{missing}/store.sock"]) == 1
    assert f"the folder {missing} does not exist; create it or choose another one" in capsys.readouterr().err
    assert main(["ls", "--address", f"unix://{missing}/store.sock"]) == 1
    assert f"start one with 'entrepot start --address unix://{missing}/store.sock'" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--size", "3.5GiB"], ["--size", "0"], ["--idle-exit", "15 min"]])
def test_a_wrong_value_is_an_error_of_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["start", *wrong])
    assert f"such as {'3GiB' if wrong[0] == '--size' else '90s'}" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("90s", 90), ("1.5h", 5400), ("1e3", 1000), ("2d", 172800)])
def test_a_duration(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1", "nan", "inf", "1e999", "1 h", "1_0", "0x10", "1m", "1H", "\u0663s"])
def test_no_duration(text: str) -> None:
    with pytest.raises(InvalidArgument, match="such as 90s, 15min, 24h or 7d"):
        units.parse_duration(text)


def test_the_idle_time_of_the_private_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_PRIVATE_IDLE_EXIT_SECONDS", "15min")
    assert settings.resolve().private_idle_exit_seconds == 900
    monkeypatch.setenv("ENTREPOT_PRIVATE_IDLE_EXIT_SECONDS", "soon")
    with pytest.raises(InvalidArgument, match=r"ENTREPOT_PRIVATE_IDLE_EXIT_SECONDS .*but got 'soon'"):
        settings.resolve()
