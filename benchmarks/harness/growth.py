"""A long-lived store: values of random sizes come and go. Used in workers."""

from __future__ import annotations

import random
import time
from typing import Any

MEDIAN_BYTES = 64 << 10
SPREAD = 2.0  # of the logarithm: one in forty is larger than 50 times the median
MIN_BYTES, MAX_BYTES = 64, 64 << 20
LIVE_SHARE = 0.5  # share of the capacity


def churn(client: Any, puts: int, capacity: int, most_seconds: float, points: int) -> dict[str, Any]:
    """Put ``puts`` arrays of log-normal sizes; before each, delete random ones to stay within half of the capacity.

    Args:
        client: of Entrepot, connected.
        puts: number of puts; fewer if ``most_seconds`` are over before.
        capacity: of the store.
        points: how often to query the store's free memory.

    Returns:
        ``points``: lists of puts so far, free bytes, largest free extent, largest possible lease of another client,
            live objects; ``refused``: number of puts rejected because the store was full.
    """
    import numpy as np

    rng = random.Random(7)
    put = client.putter("array")
    most = min(MAX_BYTES, capacity // 16)
    source = np.arange(most // 8 + 1, dtype=np.int64)
    alive: list[tuple[Any, int]] = []
    used = refused = done = 0
    total_bytes = 0
    history: list[list[int]] = []
    end = time.monotonic() + most_seconds
    begin = time.perf_counter()
    for number in range(puts):
        words = max(MIN_BYTES, min(most, int(rng.lognormvariate(0.0, SPREAD) * MEDIAN_BYTES))) // 8
        nbytes = words * 8
        while used + nbytes > capacity * LIVE_SHARE:
            used -= _drop_one(client, alive, rng)
        try:
            token = put(source[:words])
        except MemoryError:
            refused += 1
            for _ in range(len(alive) // 10 + 1):
                used -= _drop_one(client, alive, rng)
            continue
        alive.append((token, nbytes))
        used += nbytes
        total_bytes += nbytes
        done = number + 1
        if number % max(1, puts // points) == 0 or done == puts:
            status = client.status()
            free = status["capacity_bytes"] - status["used_bytes"]
            history.append([done, free, status["largest_free_extent"], status["largest_lease_bytes"], len(alive)])
        if time.monotonic() > end:
            break
    return {
        "points": history,
        "refused": refused,
        "puts": done,
        "bytes": total_bytes,
        "seconds": time.perf_counter() - begin,
    }


def _drop_one(client: Any, alive: list[tuple[Any, int]], rng: random.Random) -> int:
    """Delete a random one; returns its size."""
    if not alive:
        return 0
    place = rng.randrange(len(alive))
    alive[place], alive[-1] = alive[-1], alive[place]
    token, nbytes = alive.pop()
    client.delete([token])
    return nbytes
