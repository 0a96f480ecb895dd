"""What an executor and its ranks tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["run", "start", "execute"]


@dataclass(frozen=True, slots=True)
class RankSetup:
    """What a rank has to know before its first task.

    Attributes:
        rank, size: as for a communicator.
        address, scope, session: the store that the program sees.
        exchange: name of the executor's own session, for what ranks exchange.
        timeout: seconds to wait for the other ranks in one operation.
    """

    rank: int
    size: int
    address: str
    scope: str
    session: str
    exchange: str
    timeout: float


@dataclass(frozen=True, slots=True)
class Task:
    """One task, for every rank.

    Attributes:
        number: counts tasks; the reply repeats it.
        group: of the communicator; a new one after each failure.
        action: ``"run"`` calls ``function(env, ...)``, ``"start"`` keeps what it returns, ``"execute"`` calls
            ``function(kept, ...)``.
        payload: function, positional and keyword arguments, by cloudpickle.
    """

    number: int
    group: str
    action: Action
    payload: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """How a task ended on a rank.

    Attributes:
        number: of the task.
        result: ID of the object that holds the result, as hex digits; empty if it failed.
        error: the exception, by cloudpickle; empty if it succeeded.
        phase: where in the program it failed.
        traceback: as text.
    """

    number: int
    result: str = ""
    error: bytes = b""
    phase: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Died:
    """A rank's process is gone.

    Attributes:
        reason: in words.
    """

    reason: str
