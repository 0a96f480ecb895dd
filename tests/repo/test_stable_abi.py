"""The extension uses no macro that the stable ABI lacks, except where it has another way for that.

Only a Python of 3.12 or later compiles it for the stable ABI, which test_wheel.py does (exhaustive); this names the
culprit in every run.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

BINDINGS = Path(__file__).resolve().parents[2] / "core/src/bindings"
UNSTABLE = re.compile(r"\bPy\w+_(?:GET_SIZE|GET_ITEM|SET_ITEM|GET_LENGTH|AS_[A-Z]\w*|READ|KIND|\w*DATA)\b|->tp_\w+")
# What is compiled for other Pythons only.
FULL_API = re.compile(r"#else\n.*?#endif\n", re.DOTALL)


@pytest.mark.parametrize("path", sorted(BINDINGS.glob("*.[ch]*")), ids=lambda path: path.name)
def test_bindings_keep_to_the_stable_abi(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "#ifdef Py_LIMITED_API" in text:
        text = FULL_API.sub("", text)
    assert UNSTABLE.findall(text) == []


def test_what_is_looked_for() -> None:
    for culprit in (
        "PyTuple_GET_SIZE(names)",
        "PyFloat_AS_DOUBLE(x)",
        "cls->tp_alloc(cls, 0)",
        "PyUnicode_1BYTE_DATA(t)",
    ):
        assert UNSTABLE.search(culprit)
    for allowed in ("PyTuple_Size(names)", "PyFloat_AsDouble(x)", "PyType_GetSlot(cls, Py_tp_alloc)"):
        assert not UNSTABLE.search(allowed)
