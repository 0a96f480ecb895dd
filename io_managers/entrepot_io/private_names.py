"""Names of an orchestrator that it does not promise to keep, as the plugins list them in ``compat/private_names.py``.

A plugin uses such a name in its ``compat`` package only. ``tools/check_private_names.py`` holds the plugins to this,
and reports the names that an installed orchestrator does not have.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrivateName:
    """A private name of an orchestrator.

    Attributes:
        module: module that has it.
        attribute: the name in it, dotted within a class (``"DagRun.state"``); empty: the module itself is meant.
        why: what it is used for.
        since: first version of the orchestrator that has it; empty: all supported versions.
        until: first version that no longer has it; empty: none yet.
    """

    module: str
    attribute: str
    why: str
    since: str = ""
    until: str = ""

    @property
    def text(self) -> str:
        """The name as it is written in messages."""
        return f"{self.module}:{self.attribute}" if self.attribute else self.module
