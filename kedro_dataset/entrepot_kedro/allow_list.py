"""Datasets without a catalog entry that go through the store, by an allow-list of the project.

    # conf/base/entrepot.yml
    intermediates:
      include: ["*"]
      exclude: ["scratch.*"]
      dataset:
        session_ttl: 2d

The setting ``ENTREPOT_INTERMEDIATES`` in ``settings.py`` takes the same, and so does the environment variable of that
name, as patterns separated by commas. Without any of them, datasets without an entry stay in memory, as Kedro has it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from entrepot_kedro.values.transcoding import plain_name

SETTING = "ENTREPOT_INTERMEDIATES"
CONFIG_KEY = "entrepot"
CONFIG_FILES = ["entrepot.yml", "entrepot.yaml", "entrepot.json"]
_KEYS = ("include", "exclude", "dataset")
_POLICY_HINT = "a policy in the project's conf folder needs another name, such as conf/base/policy.yaml"
# Supplied by the run, or meaningless for a dataset that every run has anew.
_RESERVED_ARGUMENTS = ("name", "run_id", "version", "versioned", "type")


@dataclass(frozen=True)
class AllowList:
    """Which datasets without a catalog entry go through the store.

    Attributes:
        include: glob patterns, one of which a name must match.
        exclude: glob patterns, none of which it may match.
        arguments: of their ``EntrepotDataset``.
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def allows(self, name: str) -> bool:
        """Return whether a dataset of this name goes through the store; a transcoded name counts without its form."""
        name = plain_name(name)
        return any(fnmatchcase(name, pattern) for pattern in self.include) and not any(
            fnmatchcase(name, pattern) for pattern in self.exclude
        )

    def unused_patterns(self, names: Iterable[str]) -> list[str]:
        """Return the patterns to include that match none of some datasets."""
        plain = {plain_name(name) for name in names}
        return [pattern for pattern in self.include if not any(fnmatchcase(name, pattern) for name in plain)]


def find_allow_list(context: Any) -> AllowList | None:
    """Find the allow-list of a project; None: it has none.

    Args:
        context: Kedro's context of the session.

    Raises:
        InvalidArgument: it is malformed; the message says where and how.
    """
    if (variable := os.environ.get(SETTING)) is not None:
        return _parse([pattern.strip() for pattern in variable.split(",") if pattern.strip()], SETTING)
    from kedro.framework.project import settings

    if (setting := getattr(settings, SETTING, None)) is not None:
        return _parse(setting, f"{SETTING} in settings.py")
    from kedro.config import MissingConfigException

    loader = context.config_loader
    if (patterns := getattr(loader, "config_patterns", None)) is not None:
        patterns.setdefault(CONFIG_KEY, CONFIG_FILES)
    try:
        config = loader[CONFIG_KEY]
    except (KeyError, MissingConfigException):  # other loaders know no such key
        return None
    except Exception as error:  # whatever the loader makes of it
        raise _invalid(f"entrepot.yml of this project cannot be read: {error}") from error
    for key in config:
        if key != "intermediates":
            policy_hint = f"; {_POLICY_HINT}" if "version" in config else ""
            raise _invalid(
                f"entrepot.yml must be a mapping with the key 'intermediates', and has the key {key!r}{policy_hint}"
            )
    return None if "intermediates" not in config else _parse(config["intermediates"], "intermediates in entrepot.yml")


def _parse(setting: Any, where: str) -> AllowList:
    if not isinstance(setting, Mapping):
        return AllowList(_patterns(setting, where))
    for key in setting:
        if key not in _KEYS:
            raise _invalid(f"{where} has the key {key!r}: only {', '.join(_KEYS)} are possible")
    arguments = setting.get("dataset") or {}
    if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
        raise _invalid(f"{where}: dataset must be a mapping of EntrepotDataset's arguments, not {arguments!r}")
    for name in _RESERVED_ARGUMENTS:
        if name in arguments:
            raise _invalid(
                f"{where}: dataset must not have {name!r}; a dataset with one needs a catalog entry of its own"
            )
    return AllowList(
        _patterns(setting.get("include", "*"), f"include of {where}"),
        _patterns(setting.get("exclude", ()), f"exclude of {where}"),
        dict(arguments),
    )


def _patterns(setting: Any, where: str) -> tuple[str, ...]:
    patterns: Iterable[Any] = (setting,) if isinstance(setting, str) else setting
    if not isinstance(patterns, Sequence) or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise _invalid(f"{where} must be a pattern or a list of patterns, such as '*', not {setting!r}")
    return tuple(patterns)


def _invalid(message: str) -> Exception:
    from entrepot.errors import InvalidArgument  # not at the top: Kedro imports this for projects without a store too

    return InvalidArgument(message)
