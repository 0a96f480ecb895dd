"""Reads a policy's nodes as the models of ``definition``, and tells each error with its place in the file.

pydantic sees plain data. The path of an error leads through the nodes to its line and column, and through the models to
what is expected there.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from pydantic import Tag, ValidationError

from entrepot_policy.schema.definition import PolicySection
from entrepot_policy.schema.diagnostics import Diagnostic, PolicyError
from entrepot_policy.schema.sections import EXACTLY_ONE, is_section, locate
from entrepot_policy.schema.value_types import EXPECTED
from entrepot_policy.schema.yaml_nodes import MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SHOWN = 60
# What pydantic's own types of errors say of types that need no annotation of ours.
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "too_short": "a list with at least one item",
}
# Where problems have the same location: first those of what is written there, then those of what is not.
_RANKS = {"missing": 1, EXACTLY_ONE: 2}


def read_policy(root: Node) -> PolicySection:
    """Read a policy.

    Raises:
        PolicyError: a value or a key is wrong; it has all such problems.
    """
    try:
        document = PolicySection.model_validate(_plain(root))
    except ValidationError as error:
        raise PolicyError(_diagnostics(error.errors(include_url=False), root)) from None
    locate(document, root)
    return document


def _plain(node: Node) -> Any:
    """The data without locations."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, SequenceNode):
        return [_plain(item) for item in node.items]
    return {key: _plain(value) for key, (_, value) in node.entries.items()}


def _diagnostics(errors: list[ErrorDetails], root: Node) -> list[Diagnostic]:
    ranks: dict[Diagnostic, int] = {}  # by diagnostic, without duplicates
    for error in errors:
        trail = [(PolicySection, root)]
        for part in _path(error):
            trail.append(_descend(*trail[-1], part))
        if error["type"] != EXACTLY_ONE:
            ranks[_diagnostic(error, *trail[-1])] = _RANKS.get(error["type"], 0)
        for kind, node in trail:  # pydantic checks this only where all else is good
            if is_section(kind) and kind.exactly_one and isinstance(node, MappingNode) and len(node.entries) != 1:
                text = f"{kind.title()} must have exactly one of {kind.keys()}"
                ranks[Diagnostic(node.location, text)] = _RANKS[EXACTLY_ONE]
    return sorted(ranks, key=lambda problem: ranks[problem])


def _path(error: ErrorDetails) -> tuple[int | str, ...]:
    """The path of an error to the value that is wrong, or to the mapping if a key is."""
    if error["type"] in ("missing", "extra_forbidden"):
        return error["loc"][:-1]
    return error["loc"][:-2] if _is_name(error) else error["loc"]


def _is_name(error: ErrorDetails) -> bool:
    """Whether a name is wrong that a user chose: pydantic's path then goes through that name to "[key]"."""
    return error["type"] == EXPECTED and error["loc"][-1:] == ("[key]",)


def _descend(kind: Any, node: Any, part: Any) -> tuple[Any, Any]:
    """The type and the node at one part of a path, given those that it starts from."""
    if is_section(kind):
        return _bare(kind.model_fields[part].annotation), node.entries[part][1]
    inner = get_args(kind)
    if get_origin(kind) is dict:
        return _bare(inner[1]), node.entries[part][1]
    if get_origin(kind) is tuple:
        return _bare(inner[0]), node.items[part] if isinstance(node, SequenceNode) else node
    return _bare(next(each for each in inner if Tag(str(part)) in get_args(each))), node  # the part is a tag


def _bare(kind: Any) -> Any:
    """A type without annotations, and without the None of what may be omitted."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    given = [each for each in get_args(kind) if each is not NoneType]
    return _bare(given[0]) if len(given) < len(get_args(kind)) else kind


def _diagnostic(error: ErrorDetails, kind: Any, node: Any) -> Diagnostic:
    """Return a diagnostic for an error, given the type and the node at its path."""
    if error["type"] == "missing":
        key = str(error["loc"][-1])
        return Diagnostic(node.location, f"{kind.title()} requires {key!r}: {kind.model_fields[key].description}")
    if error["type"] == "extra_forbidden":
        key = str(error["loc"][-1])
        return Diagnostic(node.entries[key][0], f"{kind.title()} has no key {key!r}; known keys: {kind.keys()}")
    if _is_name(error):
        name = str(error["loc"][-2])
        return Diagnostic(node.entries[name][0], f"{name!r} cannot be {error.get('ctx', {})['what']}")
    return Diagnostic(node.location, f"got {_shown(node)}, expected {_expected(error, kind, node)}")


def _expected(error: ErrorDetails, kind: Any, node: Node) -> str:
    if error["type"] != EXPECTED:
        return f"{kind.title()}: a mapping with {kind.keys()}" if is_section(kind) else _EXPECTED[error["type"]]
    context = error.get("ctx", {})
    if context["string"] and isinstance(node, ScalarNode) and not isinstance(node.value, (str, NoneType)):
        return f"{context['what']}; YAML does not read this as a string: put it in quotes"
    return f"{context['what']}, such as {context['example']!r}" if context["example"] else str(context["what"])


def _shown(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        return "a list" if isinstance(node, SequenceNode) else "a mapping"
    text = "nothing" if node.value is None else repr(node.value)
    return text[:SHOWN] + "..." if len(text) > SHOWN else text
