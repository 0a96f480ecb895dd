"""Cost model of checkpoints, for ``when: auto``.

Young and Daly determine how often a long computation should write its state; an output is written once or not at all,
so the question becomes that of Han et al. for workflows, one task at a time. Let, in seconds,

    R  time to recompute the value: the task, and the preceding tasks whose outputs are in no checkpoint
    W  time to write the checkpoint, L time to load it
    p  probability that the value is lost before its last use

The expected cost is p R without a checkpoint, and W + p L with one. The checkpoint pays if ``p R > W + p L``. Losses
are independent with a constant rate, so a value that is needed for T seconds is lost with p = 1 - exp(-rate T). The
rate is measured: n losses in t seconds of observation, with a prior that counts as one loss in ``1 / assumed`` seconds,
give (n + 1) / (t + 1 / assumed), the mean of a gamma posterior.

Sources: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974; J. T. Daly, A
higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006; L. Han, L.-C. Canon,
H. Casanova, Y. Robert, F. Vivien, Checkpointing workflows for fail-stop errors, IEEE Transactions on Computers 67(8),
2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY_SECONDS = 86400.0
# Until a target was measured: typical of a small machine's disk, or a connection to an object store.
DEFAULT_BYTES_PER_SECOND = 100e6
DEFAULT_LATENCY_SECONDS = 0.05
DEFAULT_LIFETIME_SECONDS = 3600.0


@dataclass(frozen=True)
class CostEstimate:
    """Costs and benefit of a checkpoint, in seconds.

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
    def without_checkpoint(self) -> float:
        """Expected cost of a loss without a checkpoint."""
        return self.chance * self.recompute

    @property
    def with_checkpoint(self) -> float:
        """Expected cost of the checkpoint and of a loss."""
        return self.write + self.chance * self.load

    @property
    def pays(self) -> bool:
        """Whether the checkpoint pays."""
        return self.without_checkpoint > self.with_checkpoint

    def __str__(self) -> str:
        sign = ">" if self.pays else "<="
        chance = f"{self.chance:.3g}"
        return f"{chance} x {self.recompute:.3g} s {sign} {self.write:.3g} s + {chance} x {self.load:.3g} s"


def loss_rate(losses: int, observed_seconds: float, assumed_per_day: float) -> float:
    """Losses per second, from observation and a prior.

    Args:
        losses: observed number of losses.
        observed_seconds: duration of the observation.
        assumed_per_day: the prior; 0: only observations count.

    >>> round(loss_rate(0, 0, 0.1) * DAY_SECONDS, 6), loss_rate(0, 1000.0, 0)
    (0.1, 0.0)
    """
    if assumed_per_day <= 0:
        return losses / observed_seconds if observed_seconds > 0 else 0.0
    return (losses + 1) / (observed_seconds + DAY_SECONDS / assumed_per_day)


def chance_of_loss(rate: float, seconds: float) -> float:
    """Probability of at least one loss within ``seconds``."""
    return -math.expm1(-rate * max(0.0, seconds))


def transfer_seconds(nbytes: int, bytes_per_second: float, latency: float) -> float:
    """Time to transfer ``nbytes``."""
    return latency + nbytes / max(1.0, bytes_per_second)


def cheaper_to_recompute(
    recompute: float, nbytes: int, write_rate: float, read_rate: float, chance_of_use: float
) -> bool:
    """Whether dropping and recomputing a value is cheaper than spilling it and reading it back.

    Args:
        recompute: seconds to recompute it.
        nbytes: of the value.
        write_rate, read_rate: of the spill disk, in bytes per second.
        chance_of_use: probability that it is read again.
    """
    spill = transfer_seconds(nbytes, write_rate, 0.0) + chance_of_use * transfer_seconds(nbytes, read_rate, 0.0)
    return chance_of_use * recompute < spill
