"""Names of pipes: ``db://orders?workers=3&query=q1``, and file names that stand for them.

Some programs refuse anything that does not look like a path. For them, a file name in a reserved folder
(``ENTREPOT_PIPES_FOLDER``) stands for the same: ``__reserved__orders@workers=3@query=q1``, with any suffix that the
program insists on.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from entrepot.errors import InvalidArgument

SCHEME = "db://"
RESERVED_PREFIX = "__reserved__"
FOLDER_VARIABLE = "ENTREPOT_PIPES_FOLDER"

# Programs add and insist on these; they are no part of a reserved file's pipe.
SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".parquet", ".arrow", ".feather", ".orc")

# A worker has a name in the store, and a connection; more of one host's processes would not help.
MAX_WORKERS = 64
MAX_VERIFIED = 10_000_000
_NAME = re.compile(r"[\w][\w.\-]*(/[\w][\w.\-]*)*")
_OPTIONS = ("workers", "query", "verify", "early_end")
_QUERY = re.compile(r"[\w.\-]*")
_MAX_BYTES = 100  # of name and of query; together with what is added they fit into a name of the store


@dataclass(frozen=True)
class PipeName:
    """A pipe, as one of its ends names it.

    Args:
        name: letters, digits, ``_``, ``-``, ``.``, and ``/`` between such words.
        workers: how many processes (or opened files) make up *this* end; the other end says so for itself.
        query: tells transfers of the same name apart.
        verify: how many rows, beside samples of later ones, go by file too, and are compared; 0: none.
        early_end: whether this end, a reader, may stop before the end without an error for the writers.

    Raises:
        InvalidArgument: one of them is malformed.
    """

    name: str
    workers: int = 1
    query: str = ""
    verify: int = 0
    early_end: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name.encode()) > _MAX_BYTES:
            raise InvalidArgument(
                f"a pipe's name has 1 to {_MAX_BYTES} bytes: letters, digits, '_', '-', '.', and '/' between words, "
                f"unlike {self.name[:120]!r}"
            )
        if not _QUERY.fullmatch(self.query) or len(self.query.encode()) > _MAX_BYTES:
            raise InvalidArgument(
                f"a pipe's query has at most {_MAX_BYTES} bytes: letters, digits, '_', '-' and '.', unlike "
                f"{self.query[:120]!r}"
            )
        if isinstance(self.workers, bool) or not 1 <= self.workers <= MAX_WORKERS:
            raise InvalidArgument(f"a pipe's end has 1 to {MAX_WORKERS} workers, not {self.workers!r}")

        if isinstance(self.verify, bool) or not 0 <= self.verify <= MAX_VERIFIED:
            raise InvalidArgument(f"verify= is a number of rows from 0 to {MAX_VERIFIED:,}, not {self.verify!r}")

    @property
    def key(self) -> str:
        """What both ends have in common: name and query."""
        return f"{SCHEME}{self.name}" + (f"?query={self.query}" if self.query else "")

    def options(self) -> list[str]:
        """The options that are not the defaults, as names have them."""
        given = {
            "workers": str(self.workers) if self.workers != 1 else "",
            "query": self.query,
            "verify": str(self.verify) if self.verify else "",
            "early_end": "true" if self.early_end else "",
        }
        return [f"{key}={value}" for key, value in given.items() if value]

    def __str__(self) -> str:
        options = self.options()
        return f"{SCHEME}{self.name}" + ("?" + "&".join(options) if options else "")


def parse(text: str) -> PipeName:
    """The pipe that ``db://name?workers=3&query=q1`` names. Both options may be left out.

    ``db:/name`` and ``db:///name`` mean the same, because programs that normalize paths write them so.

    Raises:
        InvalidArgument: the text does not have this form, or an option that no pipe has.
    """
    matched = re.fullmatch(r"db:/+([^?#]*)(?:\?([^#]*))?", text) if isinstance(text, str) else None
    if matched is None:
        raise InvalidArgument(f"a pipe's name has the form db://name?workers=2&query=q1, unlike {text!r}")
    options = matched[2].split("&") if matched[2] else []
    return _with_options(unquote(matched[1]).rstrip("/"), options, text)


def parse_reserved(path: str | os.PathLike[str]) -> PipeName:
    """The pipe that a reserved file name stands for, whatever its folder.

    Raises:
        InvalidArgument: the name is not ``__reserved__``, a name, and options, each after an ``@``.
    """
    text = os.fspath(path)
    base = os.path.basename(text)
    if not base.startswith(RESERVED_PREFIX):
        raise InvalidArgument(f"a reserved file's name begins with {RESERVED_PREFIX}, unlike {base!r}")
    base = base.removeprefix(RESERVED_PREFIX)
    for suffix in SUFFIXES:
        if base.endswith(suffix):
            base = base.removesuffix(suffix)
            break
    name, *options = base.split("@")
    return _with_options(unquote(name), options, text)


def is_reserved(path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> bool:
    """Whether a path names a reserved file: its name begins with ``__reserved__``, and its folder is the reserved one.

    Args:
        path: absolute, or relative to the working directory.
        folder: the reserved folder; ``None``: that of ENTREPOT_PIPES_FOLDER. Without one, no file is reserved.
    """
    text, reserved = os.fspath(path), folder or os.environ.get(FOLDER_VARIABLE)
    if not reserved or not os.path.basename(text).startswith(RESERVED_PREFIX):
        return False
    return os.path.realpath(os.path.dirname(os.path.abspath(text))) == os.path.realpath(reserved)


def reserved_file(pipe: PipeName, folder: str | os.PathLike[str], suffix: str = "") -> Path:
    """The reserved file in ``folder`` that stands for a pipe."""
    return Path(folder) / ("@".join([RESERVED_PREFIX + quote(pipe.name, safe=""), *pipe.options()]) + suffix)


def _with_options(name: str, options: list[str], text: str) -> PipeName:
    given: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if key not in _OPTIONS or not equals or key in given:
            raise InvalidArgument(
                f"{text!r} has the option {option!r}: a pipe has workers=N, query=TEXT, verify=ROWS and early_end=true,"
                " once each"
            )
        given[key] = unquote(value)
    workers = given.get("workers", "1")
    if not (workers.isascii() and workers.isdecimal()):
        raise InvalidArgument(f"{text!r} has workers={workers}: give a number from 1 to {MAX_WORKERS}")
    verify, early_end = given.get("verify", "0"), given.get("early_end", "false")
    if not (verify.isascii() and verify.isdecimal()):
        raise InvalidArgument(f"{text!r} has verify={verify}: give a number of rows from 0 to {MAX_VERIFIED:,}")
    if early_end not in ("true", "false"):
        raise InvalidArgument(f"{text!r} has early_end={early_end}: give true or false")
    return PipeName(name, int(workers[:9]), given.get("query", ""), int(verify[:9]), early_end == "true")
