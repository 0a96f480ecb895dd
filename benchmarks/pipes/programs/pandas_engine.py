"""pandas as an engine: a table in memory, exported and imported as CSV."""

import sys

import pandas as pd
from engine_loop import serve

table = pd.read_csv(sys.argv[1])


def export(name, header):
    table.to_csv(name, index=False)


def take(name, header):
    frame = pd.read_csv(name) if header else pd.read_csv(name, header=None, names=list(table.columns))
    return len(frame), int(frame["id"].sum())


serve(export, take)
