"""Tasks whose work another process does: which values it reads and where it puts its own, as a JSON object for it.

An orchestrator's side makes an :class:`ExternalTask`, whose :meth:`~ExternalTask.to_dict` travels to the process, by
whatever way the orchestrator has for that. The process gets and puts values with :meth:`ExternalTask.parse`'s, without
the orchestrator installed, and returns the references of what it has put.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from entrepot.codec import CopyMode
from entrepot.errors import InvalidArgument, InvalidReference, ObjectNotFound, VersionMismatch

from entrepot_io.connections import session_store
from entrepot_io.reference import Reference
from entrepot_io.values import get_value, get_values, put_value

FORMAT_VERSION = 1
_FIELDS = ("scope", "session_ttl", "inputs", "outputs")


@dataclass(frozen=True)
class OutputSlot:
    """Where an output goes.

    Attributes:
        session: of the store.
        key: logical key in it.
        partitions: key by partition, where the output is a dictionary of these; then ``key`` is not used.
    """

    session: str
    key: str = ""
    partitions: Mapping[str, str] | None = None


@dataclass(frozen=True)
class ExternalTask:
    """What another process reads and writes.

    Attributes:
        scope: of what it writes.
        session_ttl: seconds that a session lives after its last use.
        inputs: by name: a reference, or one for each partition.
        outputs: by name.
        address: of the store; None: the one that ``entrepot.connect`` finds in that process.
    """

    scope: str
    session_ttl: float
    inputs: Mapping[str, Reference | Mapping[str, Reference]]
    outputs: Mapping[str, OutputSlot]
    address: str | None = None

    def get(self, name: str, *, copy: CopyMode = "never") -> Any:
        """Return an input: its value, or a dictionary by partition if it has several.

        Args:
            name: of the input.
            copy: ``"never"`` for a read-only view, ``"on_write"`` or ``"always"`` for a writable value.

        Raises:
            ObjectNotFound: there is no such input, or it was never written.
            ObjectLost: it is no longer in the store.
            StoreUnavailable: the store cannot be reached.
        """
        reference = self.inputs.get(name)
        if reference is None:
            raise ObjectNotFound(
                f"this process was given no reference to {name!r}, only to {_listed(self.inputs)}: it is no input of "
                "the task, or it was never written to the store"
            )
        if isinstance(reference, Reference):
            return get_value(reference, address=self.address, copy=copy)
        values = get_values(list(reference.values()), address=self.address, copy=copy)
        return dict(zip(reference, values, strict=True))

    def put(self, value: Any, name: str | None = None) -> Reference | dict[str, Reference]:
        """Put an output into the store; return its reference, or one for each partition.

        Args:
            value: anything that a codec accepts; for an output with several partitions, a dictionary of them.
            name: of the output; None: the only one.

        Raises:
            InvalidArgument: the task has no such output, or several and none is named, or partitions are missing.
            StoreFull: it does not fit.
            UnsupportedType: no codec accepts it.
            StoreUnavailable: the store cannot be reached.
        """
        name = self.output_name(name)
        slot = self.outputs[name]
        store = session_store(self.address, self.scope, slot.session, self.session_ttl)
        if slot.partitions is None:
            return put_value(store, slot.key, value)
        if not isinstance(value, Mapping) or set(value) != set(slot.partitions):
            returned = _listed(value) if isinstance(value, Mapping) else type(value).__name__
            raise InvalidArgument(
                f"the output {name!r} covers {len(slot.partitions)} partitions: put a dictionary with the value of "
                f"each of {_listed(slot.partitions)}, not {returned}"
            )
        return {partition: put_value(store, key, value[partition]) for partition, key in slot.partitions.items()}

    def output_name(self, name: str | None) -> str:
        """Return the name of an output.

        Args:
            name: None: the only one.

        Raises:
            InvalidArgument: the task has no such output, or several and none is named.
        """
        if name is None and len(self.outputs) == 1:
            return next(iter(self.outputs))
        if name is None or name not in self.outputs:
            raise InvalidArgument(f"the task's outputs are {_listed(self.outputs)}: name one of them, not {name!r}")
        return name

    def to_dict(self) -> dict[str, Any]:
        """The JSON object for the process; :meth:`parse` reads it there."""
        return {
            "version": FORMAT_VERSION,
            "address": self.address,
            "scope": self.scope,
            "session_ttl": self.session_ttl,
            "inputs": {
                name: each.to_dict()
                if isinstance(each, Reference)
                else {"partitions": {partition: reference.to_dict() for partition, reference in each.items()}}
                for name, each in self.inputs.items()
            },
            "outputs": {
                name: {
                    "session": slot.session,
                    **({"key": slot.key} if slot.partitions is None else {"partitions": dict(slot.partitions)}),
                }
                for name, slot in self.outputs.items()
            },
        }

    @classmethod
    def parse(cls, data: object) -> ExternalTask:
        """Parse what :meth:`to_dict` produced.

        Args:
            data: the JSON object.

        Raises:
            InvalidReference: it is damaged; the message names the field.
            VersionMismatch: it was written by a newer version.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("version"), int):
            raise InvalidReference(f"a task for another process is a JSON object with a version, not {data!r:.60}")
        if data["version"] > FORMAT_VERSION:
            raise VersionMismatch(
                f"the task was described by a newer version ({data['version']}; this installation reads up to "
                f"{FORMAT_VERSION}): upgrade entrepot in the environment of this process"
            )
        missing = [name for name in _FIELDS if name not in data]
        if missing:
            raise InvalidReference(f"the description of the task has no {', '.join(missing)}")
        return cls(
            scope=str(data["scope"]),
            session_ttl=float(data["session_ttl"]),
            inputs={name: _parse_input(each) for name, each in _mapping(data, "inputs").items()},
            outputs={name: _parse_slot(name, each) for name, each in _mapping(data, "outputs").items()},
            address=None if data.get("address") is None else str(data["address"]),
        )


def _parse_input(data: Any) -> Reference | dict[str, Reference]:
    if isinstance(data, Mapping) and isinstance(several := data.get("partitions"), Mapping):
        return {str(partition): Reference.parse(each) for partition, each in several.items()}
    return Reference.parse(data)


def _parse_slot(name: str, data: Any) -> OutputSlot:
    if not isinstance(data, Mapping) or "session" not in data or not ("key" in data or "partitions" in data):
        raise InvalidReference(f"the output {name!r} of the task has no session, or neither a key nor partitions")
    partitions = data.get("partitions")
    return OutputSlot(
        str(data["session"]),
        str(data.get("key", "")),
        {str(key): str(value) for key, value in partitions.items()} if isinstance(partitions, Mapping) else None,
    )


def _mapping(data: Mapping[Any, Any], field: str) -> Mapping[str, Any]:
    if not isinstance(value := data[field], Mapping):
        raise InvalidReference(f"{field} of the task is a JSON object, not {value!r:.60}")
    return value


def _listed(names: Mapping[str, Any] | Sequence[str]) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"
