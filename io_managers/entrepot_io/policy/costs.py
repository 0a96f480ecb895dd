"""When a checkpoint is worth its price: ``when: auto``.

Young and Daly ask how often a long computation should write its state; an output is written once or not at all, so
their question becomes that of Han et al. for workflows, one task at a time. Let, in seconds,

    R  what it takes to make the value again: the task, and the tasks before it whose outputs are in no checkpoint
    W  what the checkpoint takes to write, L what it takes to load
    p  the chance that the value is lost before its last use

Without a checkpoint a loss is expected to cost p R, with one W + p L. The checkpoint pays if ``p R > W + p L``. Losses
come independently at a rate, so a value that is needed for T seconds is lost with p = 1 - exp(-rate T). The rate is
measured: n losses seen in t seconds of watching, with a prior that counts as one loss in ``1 / assumed`` seconds, give
(n + 1) / (t + 1 / assumed), the mean of a gamma posterior.

Sources: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974; J. T. Daly, A
higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006; L. Han, L.-C. Canon,
H. Casanova, Y. Robert, F. Vivien, Checkpointing workflows for fail-stop errors, IEEE Transactions on Computers 67(8),
2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY_SECONDS = 86400.0
# Until a target was measured: what a disk of a small machine, or a connection to an object store, gives.
DEFAULT_BYTES_PER_SECOND = 100e6
DEFAULT_LATENCY_SECONDS = 0.05
DEFAULT_LIFETIME_SECONDS = 3600.0


@dataclass(frozen=True)
class Estimate:
    """What a checkpoint costs and saves, in seconds.

    Attributes:
        recompute, write, load: R, W and L.
        chance: p.
        lifetime: T.
    """

    recompute: float
    write: float
    load: float
    chance: float
    lifetime: float

    @property
    def without(self) -> float:
        """What a loss is expected to cost without a checkpoint."""
        return self.chance * self.recompute

    @property
    def with_one(self) -> float:
        """What the checkpoint, and a loss, are expected to cost."""
        return self.write + self.chance * self.load

    @property
    def pays(self) -> bool:
        """Whether the checkpoint pays."""
        return self.without > self.with_one

    def __str__(self) -> str:
        sign = ">" if self.pays else "<="
        chance = f"{self.chance:.3g}"
        return f"{chance} x {self.recompute:.3g} s {sign} {self.write:.3g} s + {chance} x {self.load:.3g} s"


def loss_rate(losses: int, watched_seconds: float, assumed_per_day: float) -> float:
    """Losses a second, from what was seen and what is assumed before.

    Args:
        losses: how often a value was lost.
        watched_seconds: for how long somebody would have noticed.
        assumed_per_day: the prior; 0: only what was seen counts.

    >>> round(loss_rate(0, 0, 0.1) * DAY_SECONDS, 6), loss_rate(0, 1000.0, 0)
    (0.1, 0.0)
    """
    if assumed_per_day <= 0:
        return losses / watched_seconds if watched_seconds > 0 else 0.0
    return (losses + 1) / (watched_seconds + DAY_SECONDS / assumed_per_day)


def chance_of_loss(rate: float, seconds: float) -> float:
    """The chance of at least one loss within some time."""
    return -math.expm1(-rate * max(0.0, seconds))


def transfer_seconds(nbytes: int, bytes_per_second: float, latency: float) -> float:
    """What moving some bytes takes."""
    return latency + nbytes / max(1.0, bytes_per_second)


def cheaper_to_recompute(
    recompute: float, nbytes: int, write_rate: float, read_rate: float, chance_of_use: float
) -> bool:
    """Whether dropping a value and making it again is cheaper than spilling it and reading it back.

    Args:
        recompute: seconds to make it again.
        nbytes: of the value.
        write_rate, read_rate: of the spill disk, in bytes a second.
        chance_of_use: that anybody reads it again.
    """
    spill = transfer_seconds(nbytes, write_rate, 0.0) + chance_of_use * transfer_seconds(nbytes, read_rate, 0.0)
    return chance_of_use * recompute < spill
