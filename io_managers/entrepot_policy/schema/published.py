"""Published forms of the definition: the JSON schema for editors, and the rows of the reference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, core_schema

from entrepot_policy.schema.constants import FORMAT_VERSION
from entrepot_policy.schema.definition import PolicySection
from entrepot_policy.schema.sections import is_section
from entrepot_policy.schema.value_types import Items, Omittable, Quantity

SCHEMA_FILE = "policy.schema.json"
_ID_PREFIX = "urn:entrepot:policy:"


class _SchemaGenerator(GenerateJsonSchema):
    """Without titles that only repeat the key, and without null as a default, which no key accepts."""

    def field_title_should_be_set(self, schema: CoreSchema | core_schema.ModelField | Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        if schema.get("default") is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a policy, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{_ID_PREFIX}{FORMAT_VERSION}",
        **PolicySection.model_json_schema(schema_generator=_SchemaGenerator),
        "title": "Entrepot policy",
    }


def schema_text() -> str:
    """The text of the published schema file."""
    return json.dumps(json_schema(), indent=2) + "\n"


def shipped_schema() -> Path:
    """Where the package has the published schema file."""
    return Path(__file__).parent.parent / SCHEMA_FILE


def is_policy_schema(text: str) -> bool:
    """Whether a text is a schema of policies, of this or another version."""
    try:
        content = json.loads(text)
    except ValueError:
        return False
    return isinstance(content, dict) and str(content.get("$id", "")).startswith(_ID_PREFIX)


def reference() -> list[tuple[str, str, str]]:
    """Every key with its default and its meaning, for the documentation."""
    return list(_rows(PolicySection, ""))


def _rows(kind: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """The rows of all keys in a type."""
    if is_section(kind):
        for key, field in kind.model_fields.items():
            name = f"{path}.{key}" if path else key
            yield name, _shown_default(field), str(field.description)
            bare = any(isinstance(annotation, Items) and annotation.bare for annotation in field.metadata)
            if get_origin(field.annotation) is tuple and not bare:
                name += "[]"
            yield from _rows(field.annotation, name)
    else:
        inner = get_args(kind)
        for each in inner:
            yield from _rows(each, f"{path}.NAME" if get_origin(kind) is dict else path)


def _shown_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    for annotation in field.metadata:
        if isinstance(annotation, Omittable):
            return annotation.default
        if isinstance(annotation, Quantity):
            return annotation.text(field.default)
    if field.default_factory is not None:
        return ""
    if isinstance(field.default, (bool, float)):
        return str(field.default).lower() if isinstance(field.default, bool) else f"{field.default:g}"
    text = str(field.default)
    return text if text.isalnum() else json.dumps(text)  # as a YAML string, "*" needs quotes
