"""Converts pods between the Kubernetes client's classes and dictionaries. The client itself is never imported here.

Supports both generations of the client (plain classes, and Pydantic models from version 36 on) and its asynchronous
variants: each class has ``openapi_types`` and ``attribute_map``, and is in the same package as the others.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Mapping
from typing import Any

from entrepot.errors import InvalidArgument

_ITEM_PATTERN = re.compile(r"(?:list\[|dict\(str, )(.+)[\])]|dict\[str, (.+)\]", re.IGNORECASE)


def is_model(value: Any) -> bool:
    """Whether a value is an object of the Kubernetes client."""
    kind = type(value)
    return hasattr(kind, "openapi_types") and hasattr(kind, "attribute_map")


def to_plain(value: Any) -> Any:
    """A copy of a pod as dictionaries and lists, with the names of Kubernetes' JSON.

    Raises:
        InvalidArgument: it is neither a dictionary nor an object of the Kubernetes client.
    """
    if not isinstance(value, Mapping) and not is_model(value):
        raise InvalidArgument(
            f"a pod must be a dictionary or a Kubernetes client object, but got {type(value).__name__} {value!r:.60}"
        )
    return _to_plain(value)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if is_model(value):
        names: Mapping[str, str] = type(value).attribute_map
        fields = ((json_name, getattr(value, name)) for name, json_name in names.items())
        return {json_name: _to_plain(item) for json_name, item in fields if item is not None}
    return value


def to_original_type(original: Any, plain: Any) -> Any:
    """Convert ``plain`` to the type of ``original``, which is not modified.

    Args:
        original: the argument of ``to_plain``.
        plain: its result, modified.
    """
    return (
        _convert_to(original, plain, type(original).__name__, type(original).__module__)
        if is_model(original)
        else plain
    )


def _convert_to(original: Any, plain: Any, kind: str, module: str) -> Any:
    """Convert a value to the given API type; what was a dictionary stays one."""
    if isinstance(plain, dict):
        if isinstance(original, Mapping):
            item_type = _item_type(kind)
            return {key: _convert_to(original.get(key), element, item_type, module) for key, element in plain.items()}
        cls = type(original) if is_model(original) else _model_class(kind, module)
        if cls is None:
            item_type = _item_type(kind)
            return {key: _convert_to(None, element, item_type, module) for key, element in plain.items()}
        return _build_model(cls, original, plain, module)
    if isinstance(plain, list):
        item_type = _item_type(kind)
        original_items = list(original) if isinstance(original, (list, tuple)) else []
        return [
            _convert_to(_matching_element(original_items, index, element), element, item_type, module)
            for index, element in enumerate(plain)
        ]
    return plain


def _build_model(cls: Any, original: Any, plain: dict[str, Any], module: str) -> Any:
    values = {
        name: _convert_to(getattr(original, name, None), plain[json_name], cls.openapi_types[name], module)
        for name, json_name in cls.attribute_map.items()
        if json_name in plain
    }
    if not is_model(original):
        return cls(**values)
    copied = copy.copy(original)
    for name in cls.attribute_map:
        value = values.get(name)
        if value is not None or getattr(original, name) is not None:
            setattr(copied, name, value)
    return copied


def _matching_element(original_items: list[Any], index: int, plain: Any) -> Any:
    """The original element at this index if it is the same entity; determines whether to build dictionaries or
    objects.
    """
    candidate = original_items[index] if index < len(original_items) else None
    if candidate is None or not isinstance(plain, dict) or not is_model(candidate):
        return candidate
    return candidate if getattr(candidate, "name", None) == plain.get("name") else None


def _item_type(kind: str) -> str:
    match = _ITEM_PATTERN.fullmatch(kind)
    return (match.group(1) or match.group(2)) if match else ""


def _model_class(kind: str, module: str) -> Any:
    package = sys.modules.get(module.rpartition(".")[0])
    model_class = getattr(package, kind, None) if kind else None
    return model_class if model_class is not None and hasattr(model_class, "openapi_types") else None
