"""Commands that get no more memory than a given amount, page cache included, by a control group."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@contextmanager
def memory_limit(nbytes: int) -> Iterator[list[str] | None]:
    """Context with words to put before a command, which then runs within the limit; None: no group can be made here."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, options = line.split(" ")[:4]
        limit = {"cgroup": "memory.limit_in_bytes", "cgroup2": "memory.max"}.get(kind)
        if limit is None or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        group = Path(mount, f"bench-{uuid.uuid4().hex}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            with suppress(OSError):
                (group / limit).write_text(str(nbytes))
                yield ["sh", "-c", _ENTER, str(group)]
                return
        finally:
            group.rmdir()
    yield None
