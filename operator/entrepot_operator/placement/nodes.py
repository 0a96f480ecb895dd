"""Evaluation of a pod's own constraints on a node, given what is known about the node: yes, no, or undecidable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from entrepot.errors import InvalidArgument

NODE_NAME_FIELD = "metadata.name"
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Node:
    """Known properties of one node.

    Attributes:
        labels: its labels.
        taints: its taints, as in its spec.
        unschedulable: whether it was cordoned.
        complete: whether ``labels`` are all of its labels; if not, those missing are unknown.
    """

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: Sequence[Mapping[str, Any]] = ()
    unschedulable: bool = False
    complete: bool = True


class Constraints:
    """Constraints of a pod's own spec on its node: node selector, required node affinity, tolerations.

    Args:
        spec: the pod's spec.
        terms: its required node selector terms; None: it has none, and any node will do.
    """

    def __init__(self, spec: Mapping[str, Any], terms: Sequence[Any] | None) -> None:
        self._selector = spec.get("nodeSelector") or {}
        self._terms = terms
        self._tolerations = spec.get("tolerations") or []

    def allows(self, name: str, node: Node) -> bool | None:
        """Whether the pod may run on the node; None: it depends on unknown labels.

        Raises:
            InvalidArgument: an operator that Kubernetes does not have.
        """
        if node.unschedulable or self._untolerated(node):
            return False
        results = [_label_equals(node, key, value) for key, value in self._selector.items()]
        if self._terms is not None:
            results.append(_any_of([_term_allows(term, name, node) for term in self._terms]))
        return _all_of(results)

    def obstacle(self, node: Node) -> str:
        """Describe what keeps the pod from a node that :meth:`allows` excludes."""
        if taints := self._untolerated(node):
            names = ", ".join(_taint_text(taint) for taint in taints)
            return f"the pod does not tolerate the taint{'s' if len(taints) > 1 else ''} {names}"
        return "cordoned" if node.unschedulable else "excluded by the pod's own node selector or affinity"

    def _untolerated(self, node: Node) -> list[Mapping[str, Any]]:
        return [
            taint
            for taint in node.taints
            if taint.get("effect") in _BLOCKING_EFFECTS
            and not any(_tolerates(toleration, taint) for toleration in self._tolerations)
        ]


def _term_allows(term: Mapping[str, Any], name: str, node: Node) -> bool | None:
    """Whether one node selector term matches; one without any expression matches nothing, as in Kubernetes."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    by_name = Node(labels={NODE_NAME_FIELD: name})
    return _all_of(
        [_expression_matches(expression, node) for expression in expressions]
        + [_expression_matches(expression, by_name) for expression in fields]
    )


def _expression_matches(expression: Mapping[str, Any], node: Node) -> bool | None:
    key, operator = expression.get("key"), expression.get("operator")
    if not isinstance(key, str) or not isinstance(operator, str):
        raise InvalidArgument(f"a node selector expression must have a key and an operator, but got {expression}")
    values = expression.get("values") or []
    exists = key in node.labels
    if not exists and not node.complete:
        return None
    value = node.labels.get(key)
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return exists
    if operator == "DoesNotExist":
        return not exists
    if operator in ("Gt", "Lt"):
        try:
            left, right = int(str(value)), int(str(values[0]))
        except (ValueError, IndexError):
            return False
        return left > right if operator == "Gt" else left < right
    raise InvalidArgument(
        f"the operator of {key} must be In, NotIn, Exists, DoesNotExist, Gt or Lt, not {operator!r}: the API "
        "server would reject the pod"
    )


def _label_equals(node: Node, key: str, value: Any) -> bool | None:
    if key not in node.labels:
        return False if node.complete else None
    return bool(node.labels[key] == value)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if not key:
        return bool(operator == "Exists")
    if key != taint.get("key"):
        return False
    return bool(operator == "Exists" or (toleration.get("value") or "") == (taint.get("value") or ""))


def _taint_text(taint: Mapping[str, Any]) -> str:
    value = taint.get("value")
    return f"{taint.get('key')}{f'={value}' if value else ''}:{taint.get('effect')}"  # as kubectl writes it


def _all_of(results: list[bool | None]) -> bool | None:
    return False if False in results else None if None in results else True


def _any_of(results: list[bool | None]) -> bool | None:
    return True if True in results else None if None in results else False
