"""Little memory for a while: a control group of keeper and daemon, its limit just above what they use."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from control_groups import NoControlGroup, made


class Pressure:
    """A group of the memory controller of version 1; ``refused`` says why there is none.

    Its kernel is told to let processes wait for a page instead of killing one: it could kill keeper and daemon
    together, which is the one death that a store does not survive. Version 2 cannot be told so.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.group: Path | None = None
        self.refused = ""
        try:
            group = self._stack.enter_context(made("memory", "soak"))
            (group / "memory.oom_control").write_text("1")
            self.group = group
        except (NoControlGroup, OSError) as error:
            self._stack.close()
            self.refused = f"no control group of version 1 that kills nobody can be made: {error}"

    def enter(self, command: list[str]) -> list[str]:
        """The command, run in the group."""
        if self.group is None:
            return command
        return ["/bin/sh", "-c", f'echo $$ > "{self.group}/cgroup.procs" && exec "$@"', "sh", *command]

    def squeeze(self, headroom_bytes: int) -> None:
        """From now on there is that much more than what is used."""
        assert self.group is not None
        used = int((self.group / "memory.usage_in_bytes").read_text())
        with suppress(OSError):  # EBUSY: it grew meanwhile, and nothing can be dropped
            (self.group / "memory.limit_in_bytes").write_text(str(used + headroom_bytes))

    def relax(self) -> None:
        assert self.group is not None
        (self.group / "memory.limit_in_bytes").write_text("-1")

    def limit_met(self) -> int:
        """How often nothing was left."""
        return int((self.group / "memory.failcnt").read_text()) if self.group is not None else 0

    def end(self) -> None:
        if self.group is not None:
            self.relax()
        self._stack.close()
