"""What the programs in Python have in common: commands by standard input, results by standard output."""

import sys


def serve(export, take):
    """Obey ``export NAME HEADER`` and ``import NAME HEADER`` until the input ends.

    Args:
        export: writes the table to a file; gets its name, and whether it has a header.
        take: reads a file likewise, and returns how many rows it has, and the sum of the first column.
    """
    print("READY", flush=True)
    for line in sys.stdin:
        action, name, header = line.split()
        try:
            result = (export if action == "export" else take)(name, header == "1")
            print("DONE", *(result or ()), flush=True)
        except Exception as error:
            print("FAILED", repr(str(error)[:2000]), flush=True)
