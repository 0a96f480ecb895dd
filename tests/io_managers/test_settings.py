"""Settings that all plugins share."""

from __future__ import annotations

import pytest
from entrepot.errors import InvalidArgument
from entrepot_io.settings import resolve


@pytest.mark.parametrize(
    ("text", "expected"), [("1", True), ("True", True), (" on ", True), ("0", False), ("no", False)]
)
def test_allocate_is_a_switch(monkeypatch: pytest.MonkeyPatch, text: str, expected: bool) -> None:
    monkeypatch.setenv("ENTREPOT_ALLOCATE", text)
    assert resolve().allocate is expected
    assert resolve(allocate=not expected).allocate is not expected


def test_allocate_may_be_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENTREPOT_ALLOCATE", raising=False)
    assert resolve().allocate is None
    assert resolve(lookup_option={"allocate": "true"}.get).allocate is True


def test_what_text_is_read_as_may_be_left_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENTREPOT_OBJECT_STRINGS", raising=False)
    assert resolve().object_strings is None
    assert resolve(lookup_option={"object_strings": "arrow"}.get).object_strings == "arrow"
    monkeypatch.setenv("ENTREPOT_OBJECT_STRINGS", "arrow")
    assert resolve().object_strings == "arrow"
    assert resolve(object_strings="object").object_strings == "object"
    monkeypatch.setenv("ENTREPOT_OBJECT_STRINGS", "polars")
    with pytest.raises(InvalidArgument, match="object_strings must be 'object' or 'arrow', not 'polars'"):
        resolve()


def test_a_mistyped_switch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_ALLOCATE", "ture")
    with pytest.raises(InvalidArgument, match="allocate must be true or false, not 'ture'"):
        resolve()


def test_an_empty_scope_is_an_error_and_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An orchestrator's own scope is replaced by a scope that is set, so an empty name must not count as one."""
    monkeypatch.setenv("ENTREPOT_SCOPE", "")
    assert resolve().scope is None
    with pytest.raises(InvalidArgument, match="scope must not be empty: give this deployment a name, or leave"):
        resolve(scope="")
    with pytest.raises(InvalidArgument, match="scope must not be empty"):
        resolve(scope="", lookup_option={"scope": "of the configuration"}.get)
