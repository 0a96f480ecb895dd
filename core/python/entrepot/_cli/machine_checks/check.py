"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        topic: what was checked.
        level: ``problem``: a store cannot work; ``note``: it works less well, or something has to be known.
        text: the finding.
        hint: a command, or lines for a configuration file, that change it; ``""``: nothing to do.
    """

    topic: str
    level: Literal["ok", "note", "problem"]
    text: str
    hint: str = ""
