"""Changes a YAML tree while preserving comments, order and quoting.

The tree is one of ruamel.yaml's. Unchanged parts are not touched. Additions are placed after existing entries, and
before the comments that follow, which belong to what comes next.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterator
from typing import Any

from entrepot.errors import InvalidArgument

# Unquoted words that YAML 1.1 (as used by Kubernetes) or YAML 1.2 does not read as strings.
_AMBIGUOUS_WORDS = frozenset({"", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n"})
MAX_VALUES = 200_000
MAX_DEPTH = 100
_TRUE_WORDS, _FALSE_WORDS = ("yes", "on"), ("no", "off")


def to_plain(node: Any) -> Any:
    """The tree as Kubernetes reads it: YAML 1.1, where ``0644`` is octal and ``yes`` is true.

    Raises:
        InvalidArgument: it contains something that Kubernetes does not support, such as a tag, or so many values as
            only nested aliases produce.
    """
    return _to_plain(node, iter(range(MAX_VALUES)), 0)


def _to_plain(node: Any, budget: Iterator[int], depth: int) -> Any:
    if next(budget, None) is None or depth > MAX_DEPTH:
        raise InvalidArgument(f"a document can have at most {MAX_VALUES} values, nested at most {MAX_DEPTH} deep")
    from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
    from ruamel.yaml.scalarint import HexInt, OctalInt, ScalarInt
    from ruamel.yaml.scalarstring import ScalarString

    if isinstance(node, CommentedMap):
        return {_check_key(key): _to_plain(value, budget, depth + 1) for key, value in node.items()}
    if isinstance(node, CommentedSeq):
        return [_to_plain(value, budget, depth + 1) for value in node]
    if isinstance(node, ScalarString):
        return str(node)
    if isinstance(node, str):
        lowered = node.lower()
        return True if lowered in _TRUE_WORDS else False if lowered in _FALSE_WORDS else node
    if isinstance(node, ScalarInt):
        digits = getattr(node, "_width", None)
        if digits and not isinstance(node, (HexInt, OctalInt)) and set(str(int(node))) <= set("01234567"):
            return int(str(int(node)), 8)
        return int(node)
    if isinstance(node, bool) or node is None:
        return node
    if isinstance(node, float):
        return float(node)
    if isinstance(node, int):
        return int(node)
    if isinstance(node, (datetime.date, datetime.datetime)):
        return node.isoformat()
    if isinstance(node, TaggedScalar):
        raise InvalidArgument(f"Kubernetes does not support YAML tags, but got {node.tag.value} {node.value!r}")
    raise InvalidArgument(f"Kubernetes' YAML has mappings, lists and scalars, but got a {type(node).__name__}")


def update(tree: Any, changed: Any) -> None:
    """Change a tree to ``changed`` where that differs from ``to_plain(tree)``.

    Args:
        tree: a mapping.
        changed: the same mapping as plain data, modified.
    """
    _expand_merge_keys(tree)
    counts: dict[int, int] = {}
    _count_collections(tree, counts)
    _update_map(tree, changed, {identity for identity, count in counts.items() if count > 1})


def _update_map(tree: Any, changed: dict[str, Any], shared: set[int]) -> None:
    tail = None
    if tree and (any(key not in tree for key in changed) or list(tree)[-1] not in changed):
        tail = _detach_tail(tree)
    for key in [key for key in tree if key not in changed]:
        del tree[key]
    for key, value in changed.items():
        if key not in tree:
            tree[key] = build_tree(value)
        elif to_plain(tree[key]) != value:
            tree[key] = _change_node(_unshare(tree, key, shared), value, shared)
            tokens = tree.ca.items.get(key)
            if tokens and len(tokens) > 3 and tokens[2] is None and not tokens[3]:  # emptied by _detach_head
                tokens[3] = None
    if tail and tree:
        _attach_tail(tree, tail)


def _update_seq(tree: Any, changed: list[Any], shared: set[int]) -> None:
    current = [to_plain(node) for node in tree]
    common_start = 0
    while common_start < min(len(current), len(changed)) and current[common_start] == changed[common_start]:
        common_start += 1
    common_end = 0
    while (
        common_end < min(len(current), len(changed)) - common_start
        and current[-1 - common_end] == changed[-1 - common_end]
    ):
        common_end += 1
    tail = _detach_tail(tree) if tree and len(current) != len(changed) else None
    middle = changed[common_start : len(changed) - common_end]
    old_count = len(current) - common_end - common_start
    for index in range(common_start, common_start + min(old_count, len(middle))):
        tree[index] = _change_node(_unshare(tree, index, shared), changed[index], shared)
    for _ in range(common_start + len(middle), common_start + old_count):
        del tree[common_start + len(middle)]
    in_front = common_start == old_count == 0 and bool(current) and bool(middle) and isinstance(middle[-1], dict)
    head = _detach_head(tree) if in_front else ""
    for index in range(common_start + old_count, common_start + len(middle)):
        tree.insert(index, build_tree(changed[index]))
    if head:
        _attach_tail(tree[len(middle) - 1], head)
    if tail and tree:
        _attach_tail(tree, tail)


def _unshare(holder: Any, key: Any, shared: set[int]) -> Any:
    """The value at ``key``; if aliases share it, first replace it here by a copy."""
    if id(holder[key]) not in shared:
        return holder[key]
    copied = copy.deepcopy(holder[key])
    _remove_anchors(copied)
    copied.ca.comment = None  # it belonged to the anchor
    tokens = holder.ca.items.get(key)
    if tokens is not None:
        holder.ca.items[key] = [*tokens[:3], None]
    holder[key] = copied
    return copied


def _change_node(node: Any, value: Any, shared: set[int]) -> Any:
    """Change a node to a value."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if not (isinstance(node, CommentedMap) and isinstance(value, dict)) and not (
        isinstance(node, CommentedSeq) and isinstance(value, list)
    ):
        return build_tree(value)
    if isinstance(value, dict):
        _update_map(node, value, shared)
    else:
        _update_seq(node, value, shared)
    return node


def _expand_merge_keys(node: Any) -> None:
    """Expand merge keys: changing what they refer to would affect other places."""
    if not isinstance(node, (dict, list)):
        return
    for value in node.values() if isinstance(node, dict) else node:
        _expand_merge_keys(value)
    if getattr(node, "_yaml_merge", None):
        inherited = {key: node[key] for key in node if key not in node._ok}  # type: ignore[union-attr]
        del node._yaml_merge  # type: ignore[union-attr]
        for key, value in inherited.items():
            node[key] = value


def _count_collections(node: Any, counts: dict[int, int]) -> None:
    """Count how often each collection occurs. Collections nested in a repeated one count as repeated too, so that
    copies are deep.
    """
    if not isinstance(node, (dict, list)):
        return
    counts[id(node)] = counts.get(id(node), 0) + 1
    for value in node.values() if isinstance(node, dict) else node:
        _count_collections(value, counts)


def _remove_anchors(node: Any) -> None:
    if isinstance(node, (dict, list)):
        if node.yaml_anchor() is not None:  # type: ignore[union-attr]
            node.yaml_set_anchor(None, always_dump=False)  # type: ignore[union-attr]
        for value in node.values() if isinstance(node, dict) else node:
            _remove_anchors(value)


def build_tree(value: Any) -> Any:
    """A tree of plain values; strings that a YAML parser could read as something else are quoted."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, SingleQuotedScalarString

    if isinstance(value, dict):
        return CommentedMap((key, build_tree(item)) for key, item in value.items())
    if isinstance(value, list):
        sequence = CommentedSeq(build_tree(item) for item in value)
        if value and all(isinstance(item, str) for item in value):
            sequence.fa.set_flow_style()
        return sequence
    if isinstance(value, str):
        if value.startswith(("{", "[")):
            return SingleQuotedScalarString(value)
        if value.lower() in _AMBIGUOUS_WORDS or not (value[0].isalpha() or value[0] == "/"):
            return DoubleQuotedScalarString(value)
    return value


def _last_entry(node: Any) -> tuple[Any, Any]:
    """The innermost collection at the end of a block collection, and the last key or index in it."""
    key: Any = list(node)[-1] if isinstance(node, dict) else len(node) - 1
    child: Any = node[key]
    inner = bool(child) and isinstance(child, (dict, list)) and not child.fa.flow_style()  # type: ignore[union-attr]
    return _last_entry(child) if inner else (node, key)


def _comment_index(holder: Any) -> int:
    """Index of the comment beside a value in a collection's comment tokens."""
    return 2 if isinstance(holder, dict) else 0


def _detach_head(node: Any) -> str:
    """Remove and return the comment lines above a list's first entry."""
    beside, above = (*(node.ca.comment or ()), None, None)[:2]
    text = ""
    if beside is not None and not isinstance(beside, list):
        first, newline, text = beside.value.partition("\n")
        beside.value = first + newline
    if above:
        text += "".join(" " * token.start_mark.column + token.value for token in above)
        above.clear()  # the holder of the list shares this token list
        node.ca.comment = None if beside is None else [beside, None]
    return text


def _detach_tail(node: Any) -> str | None:
    """Remove and return the comment lines after a collection; a comment beside its last value stays."""
    if node.fa.flow_style():
        return None
    holder, key = _last_entry(node)
    comment_index = _comment_index(holder)
    tokens = holder.ca.items.get(key)
    token = tokens[comment_index] if tokens and len(tokens) > comment_index else None
    if token is None or isinstance(token, list):
        return None
    beside, newline, tail = token.value.partition("\n")
    if not tail:
        return None
    if beside:
        token.value = beside + newline
    else:
        tokens[comment_index] = None
    return str(tail)


def _attach_tail(node: Any, tail: str) -> None:
    from ruamel.yaml.error import CommentMark
    from ruamel.yaml.tokens import CommentToken

    if node.fa.flow_style():
        return
    holder, key = _last_entry(node)
    comment_index = _comment_index(holder)
    tokens = holder.ca.items.setdefault(key, [None] * (4 if comment_index else 2))
    if tokens[comment_index] is None:
        tokens[comment_index] = CommentToken("\n" + tail, CommentMark(0), None)
    else:
        tokens[comment_index].value = tokens[comment_index].value.rstrip("\n") + "\n" + tail


def _check_key(key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidArgument(f"the keys of a Kubernetes document must be strings, but got {key!r}: put it in quotes")
    return str(key)
