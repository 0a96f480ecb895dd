"""``load_args`` and ``save_args`` of a catalog entry: in which form, and which columns of it, a value changes hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from entrepot.errors import InvalidArgument
from entrepot_io.conversions import FORMS, computed, convert, select

_ARGUMENTS = ("as", "columns")
# A plan or a reader is no value of its own: its rows are stored, in one of these forms.
_STORED_FORMS = ("pandas", "polars", "arrow", "numpy")
_FORMS: dict[str, tuple[str, ...]] = {"load_args": tuple(FORMS), "save_args": _STORED_FORMS}


@dataclass(frozen=True)
class TableArguments:
    """How a value is loaded or saved.

    Attributes:
        form: one of ``entrepot_io.conversions.FORMS``; None: as it is.
        columns: of a table; None: all.
    """

    form: str | None = None
    columns: tuple[str | int, ...] | None = None

    def describe(self) -> dict[str, Any] | None:
        """Return them as a catalog has them; None: none."""
        arguments = {"as": self.form, "columns": None if self.columns is None else list(self.columns)}
        return {name: value for name, value in arguments.items() if value is not None} or None

    def apply(self, value: Any) -> Any:
        """Return a value as these ask for.

        Raises:
            UnsupportedType: it has no such form.
            InvalidArgument: it has no such column, or no columns.
        """
        if self.form is not None:
            return convert(value, self.form, columns=self.columns)
        return self.select(value)

    def apply_to_saved(self, value: Any) -> Any:
        """Return a value as it is to be stored: what is still to be computed is computed once, for all readers.

        Raises: as :meth:`apply`.
        """
        return value if self == TableArguments() else self.apply(computed(value))

    def select(self, value: Any) -> Any:
        """Return a value with the columns that these ask for, in the form that it has.

        Raises:
            InvalidArgument: it has no such column, or no columns.
        """
        return value if self.columns is None else select(value, self.columns)


def parse_table_arguments(
    argument: Literal["load_args", "save_args"], setting: Mapping[str, Any] | None
) -> TableArguments:
    """Parse ``load_args`` or ``save_args``.

    Args:
        argument: which of them.
        setting: its value; None: it is not set.

    Raises:
        InvalidArgument: an argument or form that does not exist, or ``columns`` that are not a list of names or
            integer labels.
    """
    if setting is None:
        return TableArguments()
    if not isinstance(setting, Mapping):
        raise InvalidArgument(f"{argument} must be a mapping with {' and '.join(_ARGUMENTS)}, not {setting!r}")
    for name in setting:
        if name not in _ARGUMENTS:
            raise InvalidArgument(f"{argument} has no argument {name!r}, only {' and '.join(_ARGUMENTS)}")
    form, columns = setting.get("as"), setting.get("columns")
    forms = _FORMS[argument]
    if form is not None and not (isinstance(form, str) and form in forms):
        raise InvalidArgument(f"{argument}: as must be one of {', '.join(forms)}, not {form!r}")
    if columns is None:
        return TableArguments(form)
    if (
        isinstance(columns, str)
        or not isinstance(columns, Sequence)
        or not all(isinstance(label, str) or type(label) is int for label in columns)
    ):
        raise InvalidArgument(f"{argument}: columns must be a list of names or of integer labels, not {columns!r}")
    return TableArguments(form, tuple(columns))
