"""Reads a policy's nodes as the models of ``definition``, and tells each error with its place in the file.

pydantic sees plain data. The path of an error leads through the nodes to its line and column, and through the models to
what is expected there.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from pydantic import Tag, ValidationError

from entrepot_policy.schema.constants import FORMAT_VERSION
from entrepot_policy.schema.definition import PolicySection
from entrepot_policy.schema.diagnostics import Diagnostic, LeftOut, did_you_mean
from entrepot_policy.schema.sections import EXACTLY_ONE, is_section, locate
from entrepot_policy.schema.value_types import EXPECTED
from entrepot_policy.schema.yaml_nodes import MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SHOWN = 60
_MAX_ROUNDS = 4
# What pydantic's own types of errors say of types that need no annotation of ours.
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "too_short": "a list with at least one item",
}
# Where problems have the same location: first those of what is written there, then those of what is not.
_RANKS = {"missing": 1, EXACTLY_ONE: 2}


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a policy.

    Attributes:
        document: the policy without the parts that have problems; None: nothing is left of it.
        problems: all wrong values and keys.
        left_out: the paths of those parts: whole rules and targets, and single keys elsewhere.
    """

    document: PolicySection | None
    problems: tuple[Diagnostic, ...] = ()
    left_out: LeftOut = frozenset()


def read_policy(root: Node) -> Reading:
    """Read a policy, with its problems. Its sound parts are read in any case, so that they can be checked, too."""
    try:
        return Reading(_validated(root))
    except ValidationError as error:
        errors = error.errors(include_url=False)
    problems = tuple(_diagnostics(errors, root))
    left_out: set[tuple[int | str, ...]] = set()
    for _ in range(_MAX_ROUNDS):  # without a part, the one around it can be wrong: a list may not be empty
        paths = {_unsound_part(error) for error in errors}
        if not isinstance(root, MappingNode) or () in paths:
            break
        left_out |= paths
        root = _without(root, paths)
        try:
            return Reading(_validated(root), problems, frozenset(left_out))
        except ValidationError as error:
            errors = error.errors(include_url=False)
    return Reading(None, problems)


def _validated(root: Node) -> PolicySection:
    document = PolicySection.model_validate(_plain(root))
    locate(document, root)
    return document


def _unsound_part(error: ErrorDetails) -> tuple[int | str, ...]:
    """The path of what to leave out because of an error: a whole rule, because it would match something else."""
    path = error["loc"]
    depth = {"targets": 2, "failover": 2}.get(str(path[0]) if path else "", 3 if path[1:2] == ("rules",) else 2)
    if error["type"] == "missing" and len(path) <= depth:
        return path[:-1] or path  # the section that lacks it; for the policy itself, see _without
    return path[:depth]


def _without(root: MappingNode, paths: set[tuple[int | str, ...]]) -> MappingNode:
    """A policy without parts of it, but with a version."""

    def pruned(node: Node, path: tuple[int | str, ...]) -> Node:
        if isinstance(node, MappingNode):
            kept = {
                key: (location, pruned(value, (*path, key)))
                for key, (location, value) in node.entries.items()
                if (*path, key) not in paths
            }
            return MappingNode(node.location, kept)
        if isinstance(node, SequenceNode):
            items = enumerate(node.items)
            kept_items = (pruned(item, (*path, index)) for index, item in items if (*path, index) not in paths)
            return SequenceNode(node.location, tuple(kept_items))
        return node

    result = pruned(root, ())
    assert isinstance(result, MappingNode)
    result.entries.setdefault("version", (root.location, ScalarNode(root.location, FORMAT_VERSION)))
    return result


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
        hint = did_you_mean(key, kind.model_fields, f"known keys: {kind.keys()}")
        return Diagnostic(node.entries[key][0], f"{kind.title()} has no key {key!r}; {hint}")
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
