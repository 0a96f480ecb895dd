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

_ITEM = re.compile(r"(?:list\[|dict\(str, )(.+)[\])]|dict\[str, (.+)\]", re.IGNORECASE)


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
            f"a pod is a dictionary or an object of the Kubernetes client, but got {type(value).__name__} {value!r:.60}"
        )
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if is_model(value):
        names: Mapping[str, str] = type(value).attribute_map
        found = ((json_name, getattr(value, name)) for name, json_name in names.items())
        return {json_name: _plain(one) for json_name, one in found if one is not None}
    return value


def back(original: Any, plain: Any) -> Any:
    """Convert ``plain`` to the type of ``original``, which is not modified.

    Args:
        original: the argument of ``to_plain``.
        plain: its result, modified.
    """
    return _back(original, plain, type(original).__name__, type(original).__module__) if is_model(original) else plain


def _back(original: Any, plain: Any, kind: str, module: str) -> Any:
    """Convert a value to the given API type; what was a dictionary stays one."""
    if isinstance(plain, dict):
        if isinstance(original, Mapping):
            item = _item(kind)
            return {key: _back(original.get(key), one, item, module) for key, one in plain.items()}
        cls = type(original) if is_model(original) else _class(kind, module)
        if cls is None:
            item = _item(kind)
            return {key: _back(None, one, item, module) for key, one in plain.items()}
        return _model(cls, original, plain, module)
    if isinstance(plain, list):
        item = _item(kind)
        before = list(original) if isinstance(original, (list, tuple)) else []
        return [_back(_twin(before, place, one), one, item, module) for place, one in enumerate(plain)]
    return plain


def _model(cls: Any, original: Any, plain: dict[str, Any], module: str) -> Any:
    values = {
        name: _back(getattr(original, name, None), plain[json_name], cls.openapi_types[name], module)
        for name, json_name in cls.attribute_map.items()
        if json_name in plain
    }
    if not is_model(original):
        return cls(**values)
    made = copy.copy(original)
    for name in cls.attribute_map:
        value = values.get(name)
        if value is not None or getattr(original, name) is not None:
            setattr(made, name, value)
    return made


def _twin(before: list[Any], place: int, plain: Any) -> Any:
    """The original element at this index if it is the same entity; determines whether to build dictionaries or
    objects.
    """
    found = before[place] if place < len(before) else None
    if found is None or not isinstance(plain, dict) or not is_model(found):
        return found
    return found if getattr(found, "name", None) == plain.get("name") else None


def _item(kind: str) -> str:
    match = _ITEM.fullmatch(kind)
    return (match.group(1) or match.group(2)) if match else ""


def _class(kind: str, module: str) -> Any:
    package = sys.modules.get(module.rpartition(".")[0])
    found = getattr(package, kind, None) if kind else None
    return found if found is not None and hasattr(found, "openapi_types") else None
