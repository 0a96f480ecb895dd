"""Mappings in a policy: sections with known keys, and mappings with user-chosen names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entrepot_policy.schema.diagnostics import Diagnostic, Location
from entrepot_policy.schema.value_types import Diagnostics, Kind, Schema, whole, wrong
from entrepot_policy.schema.yaml_nodes import MappingNode, Node


@dataclass(frozen=True)
class OpenMapping(Kind):
    """A mapping with user-chosen names."""

    what: str
    pattern: str
    value: Kind

    def read(self, node: Node, problems: Diagnostics) -> dict[str, Any] | None:
        if not isinstance(node, MappingNode):
            wrong(node, problems, "a mapping")
            return None
        found: dict[str, Any] = {}
        for name, (mark, value) in node.entries.items():
            if not re.fullmatch(self.pattern, name):
                problems.append(Diagnostic(mark, f"{name!r} cannot be {self.what}: it must match {self.pattern}"))
            found[name] = self.value.read(value, problems)
        return None if any(item is None for item in found.values()) else found

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": {"pattern": whole(self.pattern)},
            "additionalProperties": self.value.schema(),
        }


@dataclass(frozen=True)
class Field:
    """One key of a section.

    Attributes:
        kind: of its value.
        doc: a description, for the reference and the schema.
        default: as shown in the reference.
        required: whether the section needs it.
    """

    kind: Kind
    doc: str
    default: str = ""
    required: bool = False


@dataclass(slots=True)
class Model:
    """A parsed section.

    Attributes:
        mark: where it begins.
        values: by key; omitted keys are absent.
        marks: location of each value.
    """

    mark: Location
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    marks: dict[str, Location] = field(default_factory=dict[str, Location])

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or the default."""
        return self.values.get(key, default)

    def at(self, key: str) -> Location:
        """Location of a value; that of the section if the value is omitted."""
        return self.marks.get(key, self.mark)


@dataclass(frozen=True)
class Section(Kind):
    """A mapping with known keys.

    Attributes:
        name: for messages.
        fields: by key.
        single: whether it has exactly one of them.
    """

    name: str
    fields: Mapping[str, Field]
    single: bool = False

    def read(self, node: Node, problems: Diagnostics) -> Model | None:
        if not isinstance(node, MappingNode):
            wrong(node, problems, f"{self.name}: a mapping with {', '.join(self.fields)}")
            return None
        before = len(problems)
        model = Model(node.location)
        for key, (mark, value) in node.entries.items():
            if key not in self.fields:
                problems.append(
                    Diagnostic(mark, f"{self.name} has no key {key!r}; known keys: {', '.join(self.fields)}")
                )
                continue
            model.values[key] = self.fields[key].kind.read(value, problems)
            model.marks[key] = mark
        for key, known in self.fields.items():
            if known.required and key not in node.entries:
                problems.append(Diagnostic(node.location, f"{self.name} requires {key!r}: {known.doc}"))
        if self.single and len(node.entries) != 1:
            problems.append(Diagnostic(node.location, f"{self.name} must have exactly one of {', '.join(self.fields)}"))
        return model if len(problems) == before else None

    def schema(self) -> Schema:
        made: Schema = {
            "type": "object",
            "properties": {
                key: {**field.kind.schema(), "description": field.doc} for key, field in self.fields.items()
            },
            "additionalProperties": False,
        }
        if required := [key for key, field in self.fields.items() if field.required]:
            made["required"] = required
        if self.single:
            made |= {"minProperties": 1, "maxProperties": 1}
        return made


@dataclass(frozen=True)
class Union(Kind):
    """One kind for scalars, another for mappings."""

    scalar: Kind
    table: Kind

    def read(self, node: Node, problems: Diagnostics) -> Any:
        return (self.table if isinstance(node, MappingNode) else self.scalar).read(node, problems)

    def schema(self) -> Schema:
        return {"anyOf": [self.scalar.schema(), self.table.schema()]}
