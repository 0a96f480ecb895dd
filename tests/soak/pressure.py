"""Memory pressure for a while: a control group of keeper and daemon, with its limit just above their use."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from control_groups import ControlGroup, NoControlGroup, control_group


class Pressure:
    """Group of the memory controller; ``refused`` says why there is none.

    The kernel is told to make processes wait for a page, or to slow them down, instead of killing one: it could kill
    keeper and daemon together, the only death that a store does not survive.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.group: ControlGroup | None = None
        self.refused = ""
        try:
            group = self._stack.enter_context(control_group("memory", "soak"))
            group.never_kill()
            self.group = group
        except (NoControlGroup, OSError) as error:
            self._stack.close()
            self.refused = f"no control group that kills nobody can be made: {error}"

    def enter(self, command: list[str]) -> list[str]:
        """Return the command, wrapped to run in the group."""
        if self.group is None:
            return command
        return ["/bin/sh", "-c", f'echo $$ > "{self.group.procs}" && exec "$@"', "sh", *command]

    def limit_memory(self, headroom_bytes: int) -> None:
        """Limit memory to this much more than what is used now."""
        assert self.group is not None
        with suppress(OSError):  # EBUSY: usage has grown meanwhile, and nothing can be reclaimed
            self.group.limit_memory(self.group.memory_used() + headroom_bytes)

    def lift_limit(self) -> None:
        assert self.group is not None
        self.group.limit_memory(None)

    def limit_hits(self) -> int:
        """Number of times that the limit was hit."""
        return self.group.memory_limit_hits() if self.group is not None else 0

    def end(self) -> None:
        if self.group is not None:
            self.lift_limit()
        self._stack.close()
