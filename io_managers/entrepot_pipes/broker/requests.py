"""What a program asks of the broker in its first line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from entrepot.errors import VersionMismatch

from entrepot_pipes.broker.frames import PROTOCOL, ProtocolError
from entrepot_pipes.names import PipeName, parse
from entrepot_pipes.text.dialect import Dialect

_KEYS = {"protocol", "pipe", "role", "form", "program", "pid", "dialect", "engine", "engine_version"}


@dataclass(frozen=True)
class Request:
    """A checked first line."""

    pipe: PipeName
    role: Literal["export", "import", "exists"]
    form: Literal["text", "arrow"]
    program: str
    pid: int
    dialect: Dialect | None
    engine: str = ""
    engine_version: str = ""

    @classmethod
    def from_line(cls, line: Mapping[str, Any], peer_pid: int) -> Request:
        """Check a line. ``peer_pid`` is the process that the kernel says has the other end.

        Raises:
            VersionMismatch: another version of the protocol.
            ProtocolError, InvalidArgument: a key or value that it does not have.
        """
        if line.get("protocol") != PROTOCOL:
            raise VersionMismatch(
                f"the broker speaks protocol {PROTOCOL}, and the program {line.get('protocol')!r}: use the library of "
                "the version of entrepot that runs 'entrepot pipe run'"
            )
        unknown = sorted(set(line) - _KEYS)
        if unknown:
            raise ProtocolError(f"the request has {unknown[0]!r}; it may have {', '.join(sorted(_KEYS))}")
        role, form = line.get("role"), line.get("form", "text")
        if role not in ("export", "import", "exists"):
            raise ProtocolError(f"the role is 'export', 'import' or 'exists', not {role!r}")
        if form not in ("text", "arrow"):
            raise ProtocolError(f"the form is 'text' or 'arrow', not {form!r}")
        program, pid, dialect = line.get("program", ""), line.get("pid", peer_pid), line.get("dialect")
        if not isinstance(program, str) or type(pid) is not int:
            raise ProtocolError(f"program is a text and pid a number, unlike {program!r} and {pid!r}")
        engine, version = line.get("engine", ""), line.get("engine_version", "")
        if not isinstance(engine, str) or not isinstance(version, str):
            raise ProtocolError(f"engine and engine_version are texts, unlike {engine!r} and {version!r}")
        if dialect is not None and not isinstance(dialect, dict):
            raise ProtocolError(f"the dialect is an object, not {dialect!r}")
        return cls(
            parse(str(line.get("pipe", ""))),
            role,
            form,
            program or f"process {pid}",
            pid,
            None if dialect is None else Dialect.from_dict(dialect),
            engine,
            version,
        )
