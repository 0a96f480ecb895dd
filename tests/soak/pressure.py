"""Memory pressure for a while: a control group of keeper and daemon, with its limit just above their use."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from control_groups import NoControlGroup, control_group


class Pressure:
    """Group of the version 1 memory controller; ``refused`` says why there is none.

    The kernel is told to make processes wait for a page instead of killing one: it could kill keeper and daemon
    together, the only death that a store does not survive. Version 2 has no such setting.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.group: Path | None = None
        self.refused = ""
        try:
            group = self._stack.enter_context(control_group("memory", "soak"))
            (group / "memory.oom_control").write_text("1")
            self.group = group
        except (NoControlGroup, OSError) as error:
            self._stack.close()
            self.refused = f"no control group of version 1 that kills nobody can be made: {error}"

    def enter(self, command: list[str]) -> list[str]:
        """Return the command, wrapped to run in the group."""
        if self.group is None:
            return command
        return ["/bin/sh", "-c", f'echo $$ > "{self.group}/cgroup.procs" && exec "$@"', "sh", *command]

    def limit_memory(self, headroom_bytes: int) -> None:
        """Limit memory to this much more than what is used now."""
        assert self.group is not None
        used = int((self.group / "memory.usage_in_bytes").read_text())
        with suppress(OSError):  # EBUSY: usage has grown meanwhile, and nothing can be reclaimed
            (self.group / "memory.limit_in_bytes").write_text(str(used + headroom_bytes))

    def lift_limit(self) -> None:
        assert self.group is not None
        (self.group / "memory.limit_in_bytes").write_text("-1")

    def limit_hits(self) -> int:
        """Number of times that the limit was hit."""
        return int((self.group / "memory.failcnt").read_text()) if self.group is not None else 0

    def end(self) -> None:
        if self.group is not None:
            self.lift_limit()
        self._stack.close()
