"""Seeds, mutations of them, and inputs found by fuzzing, run through the fuzz targets."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from targets import TARGETS

ROUNDS = 3000
FOUND = Path(__file__).with_name("found")  # TARGET-*: one input per file

HOSTILE = (
    b"",
    b"[" * 5000,
    b'{"a":' * 5000,
    b"\x91" * 5000,
    b'{"entrepot_durable": 1e999, "url": "u", "mode": "through", "match": "*"}',
    b'{"entrepot_durable": [], "url": 1}',
    b'{"entrepot_checkpoint": 1' + b"0" * 5000 + b"}\n",
)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Change, remove, duplicate or replace a few bytes, or insert significant numbers and brackets."""
    out = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(out) + 1)
        how = chance.randrange(5)
        if how == 0 and at < len(out):
            out[at] = chance.randrange(256)
        elif how == 1:
            del out[at : at + chance.randrange(1, 9)]
        elif how == 2:
            out[at:at] = out[at : at + chance.randrange(1, 33)]
        elif how == 3:
            out[at:at] = chance.choice((b"-1", b"99999999999999999999", b"1e999", b"null", b"[]", b"{}", b'"', b"NaN"))
        else:
            out[at : at + 1] = chance.choice((b"\xff", b"\x00", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\n", b"}", b"]"))
    return bytes(out)


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_the_projects_errors(name: str) -> None:
    target = TARGETS[name]
    for seed in target.seeds:
        assert target.run(seed), "a seed is read well"
    for data in HOSTILE:
        target.run(data)
    for path in sorted(FOUND.glob(f"{name}-*")):
        target.run(path.read_bytes())
    chance = random.Random(20)
    for _ in range(ROUNDS):
        target.run(mutated(chance.choice(target.seeds), chance))
