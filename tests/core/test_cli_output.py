"""Output of the command line: the store's memory and disk, and names as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot._cli.common import human_bytes
from entrepot._cli.daemon import format_status, kept_bytes
from entrepot.cli import main

MIB = 1 << 20

Printed = Callable[..., str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """``printed(address, "ls")``: what a subcommand prints, which must succeed."""

    def run(address: str, *arguments: object) -> str:
        capsys.readouterr()
        code = main([*map(str, arguments), "--address", address])
        captured = capsys.readouterr()
        assert (code, captured.err) == (0, "")
        return captured.out

    return run


def line(text: str, start: str) -> str:
    (text_line,) = (item for item in text.splitlines() if item.startswith(start))
    return text_line


def test_the_disk_is_in_the_status(
    new_daemon: Callable[..., Any], tmp_path: Path, printed: Printed, wait_until: Callable[..., None]
) -> None:
    folder = tmp_path / "spill"
    daemon = new_daemon("64MiB", "--spill-path", str(folder), "--spill-quota", "256MiB")
    with entrepot.connect(daemon.address) as store:
        spilled = store.put(np.zeros(MIB, np.uint8), name="cold")
        store.put(np.ones(MIB, np.uint8), name="hot")
        store.evict(spilled)
        wait_until(lambda: store.info(spilled).state == "spilled", "the value to be written")
        status = store.status()
        disk = line(printed(daemon.address, "status"), "disk ")
        used = human_bytes(status["spill"]["disk_bytes"])
        assert disk == f"disk       {used} spilled of at most 256.0 MiB, in {status['spill']['folders'][0]}"
        assert status["spill"]["disk_bytes"] >= MIB
        listed = {row.split()[-1]: row.split() for row in printed(daemon.address, "ls").splitlines()}
        assert "spilled" in listed["cold"]
        assert "sealed" in listed["hot"]
        assert "  disk: " not in printed(daemon.address, "doctor")
        status["spill"]["note"] = "the disk is full"
        assert line(format_status(status), "note ") == "note       spilling: the disk is full"
        status["spill"]["note"], status["provision_note"] = "", "the machine is short of memory"
        assert line(format_status(status), "note ") == "note       memory: the machine is short of memory"


def test_a_store_that_cannot_spill_says_so(new_daemon: Callable[..., Any], printed: Printed) -> None:
    daemon = new_daemon("64MiB", "--spill-path", "none")
    status = printed(daemon.address, "status")
    assert line(status, "disk ") == "disk       nothing is spilled: disabled by --spill-path none"
    doctor = line(printed(daemon.address, "doctor"), "note     disk: ")
    assert doctor.endswith("spilling is off, so a full store refuses puts: disabled by --spill-path none")


def test_memory_kept_for_the_next_puts_does_not_look_used(
    daemon: Any, printed: Printed, wait_until: Callable[..., None]
) -> None:
    with entrepot.connect(daemon.address) as store:
        store.wait_provisioned(60)
        store.put(np.zeros(20 * MIB, np.uint8))
        text = line(printed(daemon.address, "status"), "capacity ")
        status = store.status()
    free = status["budget"]["free_bytes"]
    assert kept_bytes(status) >= 64 * MIB
    assert status["used_bytes"] + status["leased_bytes"] + kept_bytes(status) + free <= status["capacity_bytes"]
    assert re.search(r": used 20\.\d MiB, .*free and kept for the next puts \d+\.\d MiB \(warm \d+\.\d MiB", text), text
    assert "free and not taken from the machine" in text


NAME = "é 😀\x1b[31m\nrow\u202eC:\\"
ESCAPED = "é 😀\\x1b[31m\\nrow\\u202eC:\\\\"


def test_unprintable_characters_of_names_are_escaped(daemon: Any, printed: Printed) -> None:
    with entrepot.connect(daemon.address, session=NAME) as store:
        store.put(1, name=NAME)
    listed = printed(daemon.address, "ls", "--session", NAME).splitlines()
    assert len(listed) == 2
    assert listed[1].endswith(f"  {ESCAPED}")
    sessions = printed(daemon.address, "sessions").splitlines()
    assert len(sessions) == 2
    assert ESCAPED in sessions[1]
    info = printed(daemon.address, "info", NAME, "--session", NAME)
    assert re.search(r"^session +" + re.escape(ESCAPED) + "$", info, re.MULTILINE), info
    assert line(info, "names ").split(None, 1)[1] == '["é 😀\\u001b[31m\\nrow\\u202eC:\\\\"]'
    (record,) = json.loads(printed(daemon.address, "ls", "--session", NAME, "--json"))
    assert record["names"] == [NAME]
    removed = printed(daemon.address, "sessions", "rm", NAME)
    assert removed.startswith(f"{ESCAPED}: ")
