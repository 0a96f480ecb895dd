"""References: what an orchestrator stores in place of a value. Format version 1, see ``docs/formats/reference.md``.

A reference is a small JSON object, readable in an orchestrator's user interface. It states where the value is (store,
scope, session, ID) and which generation of that ID was written, so that a reader on the wrong host, or one that comes
after the value was replaced or lost, gets an error that says so and never another value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from entrepot.errors import InvalidArgument, InvalidReference, VersionMismatch
from entrepot.ids import ObjectID
from entrepot.phrases import human_bytes, session_phrase

FORMAT_VERSION = 1
MARKER = "entrepot"
_MAX_QUOTED = 60  # characters of an invalid value quoted in error messages
_INSTANCE = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MAX_INT = 2**63 - 1
# A mapping with these fields is treated as a reference even if its marker is missing.
_IDENTIFYING_FIELDS = frozenset({"scope", "session", "id", "generation", "instance"})


@dataclass(frozen=True)
class Reference:
    """Names one value in one store.

    Attributes:
        scope: the deployment that wrote it.
        session: the run that wrote it; empty for the scope's own session.
        id: the object.
        generation: the generation of that ID.
        instance: the store that holds it, 32 hexadecimal digits.
        host: the host of that store, for display.
        type: the value's type, for display.
        nbytes: size of its payload in bytes.
        shape: of an array or table, for display.
        key: the logical key that the ID was derived from, for display; ``None`` for a random ID.
        traceparent: the span in which it was written, as W3C Trace Context has it; ``None`` without traces.
    """

    scope: str
    session: str
    id: ObjectID
    generation: int
    instance: str
    host: str
    type: str
    nbytes: int
    shape: tuple[int, ...] | None = None
    key: str | None = None
    traceparent: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that an orchestrator stores; :meth:`parse` reads it back."""
        data: dict[str, Any] = {
            MARKER: FORMAT_VERSION,
            "type": self.type,
            "nbytes": self.nbytes,
            "key": self.key,
            "scope": self.scope,
            "session": self.session,
            "id": str(self.id),
            "generation": self.generation,
            "instance": self.instance,
            "host": self.host,
        }
        if self.key is None:
            del data["key"]
        if self.shape is not None:
            data["shape"] = list(self.shape)
        if self.traceparent is not None:
            data["traceparent"] = self.traceparent
        return data

    def __str__(self) -> str:
        shape = "" if self.shape is None else " " + "x".join(map(str, self.shape))
        summary = f"{self.type}{shape}, {human_bytes(self.nbytes)}"
        key_prefix = f"{self.key!r} " if self.key is not None else ""
        return f"{key_prefix}({summary}; object {self.id} in {session_phrase(self.scope, self.session)})"

    @classmethod
    def parse(cls, data: object) -> Reference:
        """Parse what :meth:`to_dict` produced and an orchestrator returned.

        Args:
            data: the JSON object.

        Raises:
            InvalidReference: a field is missing or damaged; the message names it and its value.
            VersionMismatch: it was written by a newer version.
        """
        if not isinstance(data, Mapping):
            raise InvalidReference(f"a reference must be a JSON object, but got {_quote(data)}: {_ADVICE}")
        version = _integer(data, MARKER)
        if version > FORMAT_VERSION:
            raise VersionMismatch(
                f"the reference has format version {version}, but this installation reads up to {FORMAT_VERSION}: "
                "upgrade entrepot here"
            )
        if version < 1:
            raise _damaged(MARKER, version, "a format version of 1 or more")
        identity = _text(data, "id")
        try:
            oid = ObjectID(identity)
        except InvalidArgument:
            raise _damaged("id", identity, "40 hexadecimal digits") from None
        instance = _text(data, "instance")
        if _INSTANCE.fullmatch(instance) is None:
            raise _damaged("instance", instance, "32 hexadecimal digits")
        scope, session = _text(data, "scope", empty=False), _text(data, "session")
        key = _text(data, "key") if data.get("key") is not None else None
        if key is not None and ObjectID.derive(scope, session, key) != oid:
            raise InvalidReference(
                f"the reference is damaged: its id {oid} does not match the key {key!r} in "
                f"{session_phrase(scope, session)}: {_ADVICE}"
            )
        return cls(
            scope=scope,
            session=session,
            id=oid,
            generation=_integer(data, "generation"),
            instance=instance,
            host=_text(data, "host"),
            type=_text(data, "type"),
            nbytes=_integer(data, "nbytes"),
            shape=_shape(data),
            key=key,
            traceparent=_traceparent(data),
        )


def is_reference(data: object) -> bool:
    """Whether a value received from an orchestrator is meant as a reference, possibly a damaged one.

    An orchestrator's own plain values never look like this: those that would are stored by reference.
    """
    return isinstance(data, Mapping) and (MARKER in data or data.keys() >= _IDENTIFYING_FIELDS)


_ADVICE = "it was modified in transit; rerun the task that wrote it"


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "..."


def _damaged(field: str, value: object, expected: str) -> InvalidReference:
    return InvalidReference(f"the reference's field {field!r} is {_quote(value)}, not {expected}: {_ADVICE}")


def _field(data: Mapping[Any, Any], field: str) -> Any:
    try:
        return data[field]
    except KeyError:
        raise InvalidReference(f"the reference {_quote(dict(data))} has no field {field!r}: {_ADVICE}") from None


def _integer(data: Mapping[Any, Any], field: str) -> int:
    value = _field(data, field)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_INT:
        raise _damaged(field, value, "a non-negative whole number")
    return value


def _text(data: Mapping[Any, Any], field: str, *, empty: bool = True) -> str:
    value = _field(data, field)
    if not isinstance(value, str) or not (value or empty):
        raise _damaged(field, value, "a string" if empty else "a non-empty string")
    return value


def _traceparent(data: Mapping[Any, Any]) -> str | None:
    value = data.get("traceparent")
    if value is None:
        return None
    if not isinstance(value, str) or _TRACEPARENT.fullmatch(value) is None:
        raise _damaged("traceparent", value, "a trace's context, such as 00-<32 digits>-<16 digits>-01")
    return value


def _shape(data: Mapping[Any, Any]) -> tuple[int, ...] | None:
    value = data.get("shape")
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value
    ):
        raise _damaged("shape", value, "a list of non-negative whole numbers")
    return tuple(value)
