"""The tables of the report, each from the rows of one group."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.figures import FIRST, FREE, SAME_CORE, TWO_CORES, WARM, Row
from benchmarks.harness.text import grid, rate_text, time_text

OURS = "entrepot"


class Rows:
    """Rows with lookup."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)

    def find(
        self, group: str, state: str, operation: str, system: str, use: str = WARM, cpus: str = FREE
    ) -> Row | None:
        """The row with this key, if it exists."""
        key = (group, state, operation, use, cpus, system)
        for row in self.rows:
            if (*row.key.case, row.key.system) == key:
                return row
        return None

    def states(self, group: str) -> list[str]:
        """The states of a group, in insertion order."""
        return list(dict.fromkeys(row.key.state for row in self.rows if row.key.group == group))

    def systems(self, group: str, state: str, operation: str | None = None) -> list[str]:
        """The systems that have a row, in insertion order."""
        return list(
            dict.fromkeys(
                row.key.system
                for row in self.rows
                if row.key.group == group and row.key.state == state and operation in (None, row.key.operation)
            )
        )


def _spread(row: Row | None) -> str:
    return "" if row is None else f"{time_text(row.p5)} .. {time_text(row.p95)}"


def _median(row: Row | None) -> str:
    return "" if row is None else time_text(row.median)


def _times(row: Row | None, ours: Row | None) -> str:
    return "" if row is None or ours is None else f"{row.median / ours.median:.2f}"


def _foreign(*rows: Row | None) -> str:
    shares = [row.foreign for row in rows if row is not None]
    return f"{max(shares):.2f}" if shares else ""


def _by_median(entries: list[tuple[float, list[str]]]) -> list[list[str]]:
    return [cells for _, cells in sorted(entries, key=lambda entry: entry[0])]


def small_table(rows: Rows, state: str, operation: str) -> str:
    """One operation on small values, by placement of client and server on processors."""
    head = ["system", "median", "5 % .. 95 %", "99 %", "CPU", "x entrepot"]
    for place in ("one core", "two cores"):
        head += [f"{place}: median", "99 %", "x entrepot"]
    places = (FREE, SAME_CORE, TWO_CORES)
    ours = [rows.find("small", state, operation, OURS, cpus=cpus) for cpus in places]
    entries = []
    for system in rows.systems("small", state, operation):
        theirs = [rows.find("small", state, operation, system, cpus=cpus) for cpus in places]
        free = theirs[0]
        cells = [system, _median(free), _spread(free)]
        cells += [time_text(free.p99) if free else "", time_text(free.cpu) if free else "", _times(free, ours[0])]
        for row, our in zip(theirs[1:], ours[1:], strict=True):
            cells += [_median(row), time_text(row.p99) if row else "", _times(row, our)]
        existing = [row for row in theirs if row is not None]
        entries.append((existing[0].median, [*cells, _foreign(*existing), str(sum(row.samples for row in existing))]))
    return grid([*head, "foreign", "n"], _by_median(entries))


def put_table(rows: Rows, state: str) -> str:
    """Puts of one large value."""
    head = ["system", "first put", "later puts", "5 % .. 95 %", "GB/s", "CPU", "x entrepot", "pages", "foreign", "n"]
    entries = []
    ours = rows.find("large", state, "put", OURS)
    for system in rows.systems("large", state, "put"):
        first, warm = (rows.find("large", state, "put", system, use) for use in (FIRST, WARM))
        if warm is None:
            continue
        cells = [system, _median(first), _median(warm), _spread(warm), rate_text(warm.nbytes, warm.median)]
        cells += [time_text(warm.cpu), _times(warm, ours), warm.pages, _foreign(first, warm), str(warm.samples)]
        entries.append((warm.median, cells))
    return grid(head, _by_median(entries))


def read_table(rows: Rows, state: str) -> str:
    """Gets of one large value by a new process, then again."""
    head = ["system", "in hand, first", "in hand, later", "5 % .. 95 %", "x entrepot"]
    head += ["first sum", "second sum", "first / second", "pages", "foreign", "n"]
    entries = []
    ours = rows.find("large", state, "get", OURS)
    for system in rows.systems("large", state, "get"):
        first, warm = (rows.find("large", state, "get", system, use) for use in (FIRST, WARM))
        row = rows.find("large", state, "first sum", system, FIRST)
        two = rows.find("large", state, "second sum", system, FIRST)
        if warm is None:
            continue
        ratio = f"{row.median / two.median:.2f}" if row and two else ""
        cells = [system, _median(first), _median(warm), _spread(warm), _times(warm, ours), _median(row), _median(two)]
        entries.append((warm.median, [*cells, ratio, warm.pages, _foreign(first, warm), str(warm.samples)]))
    return grid(head, _by_median(entries))


def many_table(rows: Rows, state: str, overheads: Sequence[dict[str, float | str | None]]) -> str:
    """Many small objects."""
    head = ["system", "put, each", "x entrepot", "get, each", "x entrepot"]
    head += ["server, bytes each", "producer, bytes each", "store, bytes each", "note"]
    memory = {str(overhead["system"]): overhead for overhead in overheads}
    entries = []
    ours = [rows.find("many", state, operation, OURS, FIRST) for operation in ("put", "get")]
    for system in rows.systems("many", state, "put"):
        put, get = (rows.find("many", state, operation, system, FIRST) for operation in ("put", "get"))
        cells = [system, _median(put), _times(put, ours[0]), _median(get), _times(get, ours[1])]
        for name in ("server", "producer", "store"):
            value = memory.get(system, {}).get(name)
            cells.append(f"{value:.0f}" if isinstance(value, (int, float)) else "")
        cells.append("; ".join(dict.fromkeys(row.note for row in (put, get) if row is not None and row.note)))
        entries.append((put.median if put else 0.0, cells))
    return grid(head, _by_median(entries))


def together_table(rows: Rows, state: str) -> str:
    """Several producers at once."""
    head = ["system", "first", "later", "5 % .. 95 %", "GB/s in all", "CPU", "x entrepot", "n"]
    entries = []
    ours = rows.find("together", state, "put", OURS)
    for system in rows.systems("together", state):
        first, warm = (rows.find("together", state, "put", system, use) for use in (FIRST, WARM))
        if warm is None:
            continue
        cells = [system, _median(first), _median(warm), _spread(warm), rate_text(warm.nbytes, warm.median)]
        entries.append((warm.median, [*cells, time_text(warm.cpu), _times(warm, ours), str(warm.samples)]))
    return grid(head, _by_median(entries))
