"""Impersonation (``as`` in a kubeconfig).

The API server checks that the caller may impersonate the other identity, then grants only that identity's permissions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from entrepot.errors import InvalidArgument

KEYS = ("as", "as-uid", "as-groups", "as-user-extra")
_PLAIN = "!#$&'*+^`|"  # in a header's name, beside what is plain in a URL


@dataclass(frozen=True)
class Impersonated:
    """The impersonated identity.

    Attributes:
        user: the name.
        uid: empty: none.
        groups: all of its groups; the caller's own are ignored.
        extra: values by key.
    """

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def headers(self) -> list[tuple[str, str]]:
        """The request headers."""
        pairs = [("Impersonate-User", self.user)]
        if self.uid:
            pairs.append(("Impersonate-Uid", self.uid))
        pairs += [("Impersonate-Group", group) for group in self.groups]
        for key, values in self.extra.items():
            name = f"Impersonate-Extra-{quote(key, safe=_PLAIN)}"  # escaped as Go's client does
            pairs += [(name, value) for value in values]
        return pairs


def read(user: Mapping[str, Any], where: str) -> Impersonated | None:
    """Parse whom a kubeconfig's user impersonates; None: nobody.

    Args:
        user: the mapping under ``user``.
        where: the file, for messages.

    Raises:
        InvalidArgument: these entries are malformed, or give details of an identity without naming it.
    """
    name, uid = _text(user.get("as"), where, "as"), _text(user.get("as-uid"), where, "as-uid")
    groups = _texts(user.get("as-groups"), where, "as-groups")
    configured = user.get("as-user-extra") or {}
    if not isinstance(configured, dict):
        raise InvalidArgument(f"{where}: as-user-extra must be a mapping of keys to lists, not {configured!r}")
    extra = {
        _text(key, where, "a key of as-user-extra"): _texts(values, where, f"as-user-extra[{key!r}]")
        for key, values in configured.items()
    }
    if name:
        return Impersonated(name, uid, groups, extra)
    if uid or groups or extra:
        present = ", ".join(key for key in KEYS[1:] if user.get(key))
        raise InvalidArgument(f"{where}: a user has {present}, but no `as` to name whom to impersonate")
    return None


def _text(value: Any, where: str, key: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise InvalidArgument(f"{where}: {key} must be a one-line string, not {value!r}")
    return value


def _texts(values: Any, where: str, key: str) -> tuple[str, ...]:
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        raise InvalidArgument(f"{where}: {key} must be a list of strings, not {values!r}")
    return tuple(_text(value, where, key) for value in values)
