"""Errors of dataframe programs, beside those of the store."""

from __future__ import annotations

from typing import ClassVar

from entrepot.errors import EntrepotError


class RankFailed(EntrepotError):
    """A rank of a program failed or died, and with it the program on all ranks.

    Attributes:
        rank: which one; -1 if the program was given up as a whole.
        phase: what the program was doing, for example ``"merge: all_to_all 7"``; empty if nobody knows.
        reason: why, in a sentence.
    """

    code: ClassVar[str] = "rank_failed"
    short_code: ClassVar[str] = "E801"

    def __init__(self, rank: int, phase: str, reason: str) -> None:
        who = f"rank {rank}" if rank >= 0 else "the program"
        during = f" in {phase}" if phase else ""
        super().__init__(f"{who} failed{during}: {reason}")
        self.rank = rank
        self.phase = phase
        self.reason = reason

    def __reduce__(self) -> tuple[type[RankFailed], tuple[int, str, str]]:
        return RankFailed, (self.rank, self.phase, self.reason)


class ProgramsDiffer(EntrepotError):
    """Two ranks called different operations at the same place of the program."""

    code: ClassVar[str] = "programs_differ"
    short_code: ClassVar[str] = "E802"


class TooFewWorkers(EntrepotError):
    """An executor could not get as many workers, or as much of their resources, as it was asked for."""

    code: ClassVar[str] = "too_few_workers"
    short_code: ClassVar[str] = "E803"
