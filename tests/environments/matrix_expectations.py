"""Expected results in each environment of the matrix: the same value, a value converted in a way that docs/codecs.md
names, or an error of Entrepot's that names the package.

The first refusal that applies counts. A value to which none applies has to be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matrix_run import Reading


@dataclass(frozen=True)
class Refusal:
    """Values that some readers cannot have.

    Attributes:
        names: of the values; one that ends with ``/`` stands for all that begin with it.
        package: which the error has to name, with the reader's version if it is a ``VersionMismatch``.
        error: its type.
        applies: whether a reading is refused.
        needed: text that the error has to have, too.
    """

    names: tuple[str, ...]
    package: str
    error: str
    applies: Callable[[Reading], bool]
    needed: str = ""

    def covers(self, reading: Reading) -> bool:
        """Whether this refusal is what is expected of the reading."""
        named = any(reading.name == name or (name[-1] == "/" and reading.name.startswith(name)) for name in self.names)
        return named and self.applies(reading)

    def fault(self, reading: Reading) -> str:
        """What is wrong with the outcome of a reading that this refusal covers; "": nothing."""
        error = reading.error
        if error is None:
            return f"read, but {self.error} was expected"
        version = reading.versions.get(self.package)
        text = f"{self.package} {version}" if self.error == "VersionMismatch" else self.package
        if error["type"] != self.error or text not in error["message"] or self.needed not in error["message"]:
            return f"{error['type']}: {error['message']}; expected {self.error} with {text!r} and {self.needed!r}"
        return ""


def _numbers(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in (version or "").split(".")[:2] if part.isdigit())


def _lacks(package: str) -> Callable[[Reading], bool]:
    return lambda reading: reading.versions[package] is None


def _reads_before(package: str, *version: int) -> Callable[[Reading], bool]:
    """The reader's version is older."""
    return lambda reading: reading.versions[package] is not None and _numbers(reading.versions[package]) < version


def _written_later(package: str, *version: int) -> Callable[[Reading], bool]:
    """The reader's version is older, the writer's is not."""
    reads_before = _reads_before(package, *version)
    return lambda reading: reads_before(reading) and _numbers(reading.writer_versions[package]) >= version


def _another_major(package: str) -> Callable[[Reading], bool]:
    return lambda reading: _numbers(reading.versions[package])[:1] != _numbers(reading.writer_versions[package])[:1]


REFUSALS = [
    Refusal(("pandas/",), "pandas", "UnsupportedType", _lacks("pandas")),
    Refusal(("polars/",), "polars", "UnsupportedType", _lacks("polars")),
    Refusal(("arrow/",), "pyarrow", "UnsupportedType", _lacks("pyarrow")),
    # Only what is stored as Arrow's buffers needs Arrow: long text, and columns over other Arrow types.
    Refusal(
        ("pandas/columns over Arrow", "pandas/decimal32 over Arrow", "pandas/str over Arrow, long"),
        "pyarrow",
        "UnsupportedType",
        _lacks("pyarrow"),
    ),
    Refusal(
        ("pandas/objects of text",),
        "pyarrow",
        "UnsupportedType",
        lambda reading: reading.versions["pyarrow"] is None and reading.writer_versions["pyarrow"] is not None,
    ),
    Refusal(
        ("arrow/decimal32", "arrow/decimal64", "arrow/type decimal64", "arrow/json", "arrow/views"),
        "pyarrow",
        "VersionMismatch",
        _written_later("pyarrow", 19),
        needed="install pyarrow 19 or newer",
    ),
    Refusal(
        ("arrow/uuid", "arrow/bool8", "arrow/opaque"),
        "pyarrow",
        "VersionMismatch",
        _reads_before("pyarrow", 18),
        needed="install pyarrow 18 or newer",
    ),
    Refusal(
        ("polars/long text",),
        "pyarrow",
        "VersionMismatch",
        _written_later("pyarrow", 19),
        needed="install pyarrow 19 or newer",
    ),
    Refusal(("arrow/own extension type",), "matrix.metres", "UnsupportedType", lambda reading: True),
    Refusal(("plain/class of one environment",), "own_classes", "UnsupportedType", lambda reading: True),
    Refusal(
        ("numpy/StringDType", "numpy/StringDType with NA", "numpy/generator", "numpy/old random state"),
        "numpy",
        "VersionMismatch",
        _written_later("numpy", 2),
    ),
    Refusal(("pandas/dtype of text", "pandas/dtype str"), "pandas", "VersionMismatch", _written_later("pandas", 2, 3)),
    Refusal(("polars/UInt128",), "polars", "VersionMismatch", _reads_before("polars", 2), needed="UInt128"),
    Refusal(("polars/Float16",), "polars", "VersionMismatch", _reads_before("polars", 2), needed="Float16"),
    Refusal(("polars/nested Enum",), "polars", "VersionMismatch", _written_later("polars", 2), needed="Enum"),
    Refusal(("polars/lazy",), "polars", "VersionMismatch", _another_major("polars")),
]


def converted(description: Any, reading: Reading) -> Any:
    """The description of what the reader has to get for a value that it can read."""
    if not isinstance(description, list):
        return description
    if len(description) == 3 and description[0] == "text":
        missing = description[2]
        if reading.versions["pyarrow"] is None:
            return ["text", "python", missing]
        if missing == "nan" and _reads_before("pandas", 2, 3)(reading):
            return ["text", "pyarrow", missing]
        return description
    if len(description) == 2 and description[0] == "pytz" and reading.versions["pytz"] is None:
        return ["zoneinfo", description[1]]
    return [converted(item, reading) for item in description]


def refusal_of(reading: Reading) -> Refusal | None:
    """The refusal that is expected of a reading; None: it has to be read."""
    return next((refusal for refusal in REFUSALS if refusal.covers(reading)), None)


def fault_of(reading: Reading) -> str:
    """What is wrong with a reading; "": nothing."""
    refusal = refusal_of(reading)
    if refusal is not None:
        return refusal.fault(reading)
    if reading.error is not None:
        return f"{reading.error['type']}: {reading.error['message']}\n{reading.error['trace']}"
    wanted = converted(reading.written, reading)
    return "" if reading.read == wanted else f"expected {wanted}, read {reading.read}"
