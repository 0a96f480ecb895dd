"""Seeds, mutations of them, and inputs found by fuzzing, run through the fuzz targets."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from targets import TARGETS

ROUNDS = 3000
FINDINGS = Path(__file__).with_name("found")  # TARGET-*: one input per file

HOSTILE_INPUTS = (
    b"",
    b"[" * 5000,
    b'{"a":' * 5000,
    b"\x91" * 5000,
    b'{"entrepot_durable": 1e999, "url": "u", "mode": "through", "match": "*"}',
    b'{"entrepot_durable": [], "url": 1}',
    b'{"entrepot_checkpoint": 1' + b"0" * 5000 + b"}\n",
)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change, remove, duplicate or replace a few bytes, or insert significant numbers and brackets."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        position = rng.randrange(len(out) + 1)
        mutation = rng.randrange(5)
        if mutation == 0 and position < len(out):
            out[position] = rng.randrange(256)
        elif mutation == 1:
            del out[position : position + rng.randrange(1, 9)]
        elif mutation == 2:
            out[position:position] = out[position : position + rng.randrange(1, 33)]
        elif mutation == 3:
            out[position:position] = rng.choice(
                (b"-1", b"99999999999999999999", b"1e999", b"null", b"[]", b"{}", b'"', b"NaN")
            )
        else:
            out[position : position + 1] = rng.choice(
                (b"\xff", b"\x00", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\n", b"}", b"]")
            )
    return bytes(out)


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_the_projects_errors(name: str) -> None:
    target = TARGETS[name]
    for seed in target.seeds:
        assert target.run(seed), "a seed is read well"
    for data in HOSTILE_INPUTS:
        target.run(data)
    for path in sorted(FINDINGS.glob(f"{name}-*")):
        target.run(path.read_bytes())
    rng = random.Random(20)
    for _ in range(ROUNDS):
        target.run(mutate(rng.choice(target.seeds), rng))
