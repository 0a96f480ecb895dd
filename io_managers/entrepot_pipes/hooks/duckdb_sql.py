"""Find reserved names in DuckDB's SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from entrepot_pipes.hooks.reserved import pipe_of
from entrepot_pipes.names import PipeName

_TEXT = r"'(?:[^']|'')*'"
_COPY = re.compile(
    rf"\s*COPY\s+(?P<what>.+?)\s+(?P<way>TO|FROM)\s+(?P<file>{_TEXT})\s*(?:WITH\s*)?(?P<options>.*?)\s*;?\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
# A call of a function that reads files with nothing but a name, or a name in place of a table.
_SOURCE = re.compile(
    rf"(?P<function>\b(?:read_csv|read_csv_auto|read_parquet|parquet_scan)\s*\(\s*)?(?P<file>{_TEXT})(?P<end>\s*\))?",
    re.IGNORECASE,
)
_READS_TABLE = re.compile(r"\b(?:FROM|JOIN)\s+\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Copy:
    """A ``COPY`` statement."""

    what: str
    writes: bool
    target: PipeName
    file: str  # as in the statement, with its quotes
    option_text: str  # the options, as in the statement
    options: dict[str, str] | None  # by their names in capitals; None: some that are not understood

    @property
    def query(self) -> str:
        """What is copied, as a query."""
        return self.what[1:-1] if self.what.startswith("(") else f"FROM {self.what}"


@dataclass(frozen=True)
class Source:
    """A name that a query reads."""

    start: int
    end: int
    file: str
    target: PipeName
    alone: bool  # a function or a table's place with nothing but this name, so that a table can take its place
    parquet: bool


def mentions_pipe(sql: str) -> bool:
    """Whether some text in the SQL is a reserved name."""
    return ("db:" in sql or "__reserved__" in sql) and any(
        pipe_of(_unquote(matched)) is not None for matched in re.findall(_TEXT, sql)
    )


def parse_copy(statement: str) -> Copy | None:
    """The statement, if it copies to or from a pipe."""
    matched = _COPY.match(statement)
    target = pipe_of(_unquote(matched["file"])) if matched else None
    if matched is None or target is None:
        return None
    option_text = matched["options"]
    writes, options = matched["way"].upper() == "TO", _copy_options(option_text)
    return Copy(matched["what"].strip(), writes, target, matched["file"], option_text, options)


def find_sources(statement: str) -> Iterator[Source]:
    """The pipes that a query reads, from the last one to the first."""
    for matched in reversed(list(_SOURCE.finditer(statement))):
        target = pipe_of(_unquote(matched["file"]))
        if target is None:
            continue
        function = matched["function"]
        table = function is None and _READS_TABLE.search(statement[: matched.start()]) is not None
        if (function is not None and matched["end"] is not None) or table:
            end = matched.end() if function else matched.end("file")
            start = matched.start() if function else matched.start("file")
            parquet = function is not None and "parquet" in function.lower()
            yield Source(start, end, matched["file"], target, alone=True, parquet=parquet)
        else:
            yield Source(
                matched.start("file"), matched.end("file"), matched["file"], target, alone=False, parquet=False
            )


def _copy_options(text: str) -> dict[str, str] | None:
    inner = text.strip()
    if inner.startswith("(") and inner.endswith(")"):
        inner = inner[1:-1]
    option = rf"(\w+)(?:\s+({_TEXT}|\w+))?"
    if not re.fullmatch(rf"(?:\s*{option}\s*(?:,|\Z))*", inner):
        return None
    return {name.upper(): _unquote(value or "true") for name, value in re.findall(option, inner)}


def _unquote(text: str) -> str:
    return text[1:-1].replace("''", "'") if text.startswith("'") else text
