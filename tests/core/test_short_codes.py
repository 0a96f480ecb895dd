"""Errors end with a short code, which names a page; so do those that have been to another process."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import entrepot
import pytest
from entrepot import cli
from entrepot.errors import BY_CODE, EntrepotError, ObjectNotFound, StoreFull


@pytest.mark.parametrize("kind", BY_CODE.values(), ids=lambda kind: kind.__name__)
def test_a_message_ends_with_the_code_once_wherever_the_error_has_been(kind: type[EntrepotError]) -> None:
    error = kind("a reason")
    assert str(error) == f"a reason [{kind.short_code}]"
    assert error.message == "a reason"
    blank = kind.__new__(kind)  # as tblib does, with which Dask pickles errors
    assert type(blank) is kind
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert str(kind(error.message)) == str(error)
    assert f"{error}" == "a reason"  # within another message
    assert f"{error!s}" == str(error)


def test_an_error_of_the_store_has_its_code(daemon: Any) -> None:
    store = entrepot.connect(daemon.address)
    with pytest.raises(ObjectNotFound, match=r"[^\]] \[E101\]$") as caught:
        store.get_by_name("missing")
    assert "[" not in caught.value.message
    with pytest.raises(StoreFull, match=r" \[E107\]$"):
        store.put(bytes(1 << 30))


def test_an_error_without_a_message_is_its_code() -> None:
    assert str(StoreFull()) == "[E107]"


def test_explain_prints_the_page_of_a_code_or_a_class(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("E107", "[e107]", "StoreFull"):
        assert cli.main(["explain", name]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("# E107: StoreFull\n")
        assert "](" not in shown, "a path within the documentation is of no use in a terminal"
    assert cli.main(["explain"]) == 0
    assert "E107  StoreFull\n" in capsys.readouterr().out


def test_explain_refuses_what_is_no_error() -> None:
    command = [sys.executable, "-m", "entrepot", "explain", "E999"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == (
        "entrepot: no error has the code or the class 'E999': 'entrepot explain' lists them all [E301]\n"
    )
