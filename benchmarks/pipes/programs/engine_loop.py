"""What the programs in Python have in common: commands by standard input, results by standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable


def serve(export: Callable[[str, bool], None], take: Callable[[str, bool], Iterable[int]]) -> None:
    """Obey ``export NAME HEADER`` and ``import NAME HEADER`` until the input ends.

    Args:
        export: writes the table to a file; gets its name, and whether it has a header.
        take: reads a file likewise, and returns how many rows it has, and the sum of the first column.
    """
    print("READY", flush=True)
    for line in sys.stdin:
        action, name, header = line.split()
        try:
            result: Iterable[int] = ()
            if action == "export":
                export(name, header == "1")
            else:
                result = take(name, header == "1")
            print("DONE", *result, flush=True)
        except Exception as error:
            print("FAILED", repr(str(error)[:2000]), flush=True)
