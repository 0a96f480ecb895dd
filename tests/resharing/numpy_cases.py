"""NumPy: which operations on a stored array share its bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sharing_case import COLUMN, ROWS, Case

RECORD = np.dtype([("x", np.int64), ("y", np.float64)])
# For the documentation, in its order.
NAMES = {
    "a": "is an array of 64-bit integers",
    "m": "a matrix in C order",
    "r": "a structured array",
    "z": "a complex array",
    "t": "an array of datetimes",
}

PARENTS: dict[str, Callable[[], Any]] = {
    "a": lambda: np.arange(ROWS),
    "m": lambda: np.arange(ROWS, dtype=np.float64).reshape(1000, 200),
    "r": lambda: np.zeros(ROWS, RECORD),
    "z": lambda: np.arange(ROWS, dtype=np.complex128),
    "t": lambda: np.arange(ROWS).astype("M8[s]"),
}
VALUES = {"np": np, "new": np.ones(ROWS), "mask": np.arange(ROWS) % 2 == 0, "order": np.arange(ROWS)[::-1].copy()}

CASES = [
    Case("a", ("a", "a[:]", "a.view()", "np.asarray(a)", "np.array(a, copy=None)", "a.astype(a.dtype, copy=False)")),
    Case("a", ("a[10_000:150_000]", "a[:-1]", "np.split(a, [120_000])[0]", "memoryview(a)")),
    Case("a", ("a.reshape(400, 500)", "a[:, None]", "np.expand_dims(a, 0)", "np.broadcast_to(a, (3, len(a)))")),
    Case("m", ("m.ravel()", "m.reshape(-1)", "m[None, :, :]", "np.atleast_3d(m)")),
    Case("m", ("m.T", "m.transpose(1, 0)", "np.swapaxes(m, 0, 1)", "np.moveaxis(m, 0, 1)", "m[100:900]")),
    Case("a", ("a.view('M8[ns]')", "a.view(np.float64)", "a.view(np.uint8)", "a.view('i4')", "a.view('>i8')")),
    Case("z", ("z.view(np.float64)",)),
    Case("t", ("t.view('i8')",)),
    Case("r", ("r.view(np.recarray)", "r.view(np.float64)")),
    Case("a", ("{'all': a, 'most': a[10_000:]}", "[a, a.view('M8[s]')]")),
    Case("a", ("{'a': a, 'new': new}",), COLUMN, "the new array"),
    Case("a", ("np.ma.masked_array(a, mask)",), ROWS, "the mask"),
    Case("m", ("m[:, :150]",), 3 * COLUMN // 4, "gaps are not stored"),
    Case("r", ("r['x']",), COLUMN, "gaps are not stored"),
    Case("z", ("z.real", "z.imag"), COLUMN, "gaps are not stored"),
    Case("a", ("a[::2]",), COLUMN // 2, "gaps are not stored"),
    Case("a", ("a[::-1]", "np.flip(a)"), COLUMN, "reversed axes are not stored"),
    Case("a", ("a[mask]", "a[order[::2]]", "np.compress(mask, a)", "a.astype(np.int32)"), COLUMN // 2),
    Case("a", ("a.copy()", "a.astype(a.dtype)", "np.sort(a)", "a.take(order)", "a + 0"), COLUMN),
    Case("a", ("np.concatenate([a, a])", "np.stack([a, a])", "np.repeat(a, 2)"), 2 * COLUMN),
]
