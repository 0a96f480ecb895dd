"""The drafts of a mount, by path and by the process that writes them."""

from __future__ import annotations

import threading

from entrepot_mount.drafts import Draft
from entrepot_mount.processes import process_of

_OPEN_WITHIN_SECONDS = 60.0  # a draft that the kernel does not open after all is dropped


class DraftRegistry:
    """Finds drafts. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drafts: dict[Draft, float] = {}  # guarded by _lock: when each was added

    def add(self, draft: Draft, now: float) -> None:
        """Add a draft that is about to be opened."""
        with self._lock:
            self._drafts[draft] = now

    def visible(self, path: str, thread: int) -> Draft | None:
        """The draft that a program sees at a path: its own, if it is not stored yet.

        Args:
            path: of the file.
            thread: of the program.
        """
        with self._lock:
            candidates = [draft for draft in self._drafts if draft.path == path]
        if not candidates:
            return None
        process = process_of(thread)
        for draft in reversed(candidates):
            if draft.owner in (0, process) and not draft.hidden:
                return draft
        return None

    def opened(self, draft: Draft) -> None:
        """A descriptor of a draft was opened."""
        with self._lock:
            draft.handles += 1

    def is_last(self, draft: Draft) -> bool:
        """Whether only one descriptor of a draft is open."""
        with self._lock:
            return draft.handles == 1

    def closed(self, draft: Draft) -> None:
        """A descriptor of a draft was closed; with the last one, its path leads elsewhere."""
        with self._lock:
            draft.handles -= 1
            if draft.handles <= 0:
                self._drafts.pop(draft, None)
                draft.close()

    def remove(self, path: str, thread: int) -> Draft | None:
        """Discard the draft that a program sees at a path, and return it."""
        draft = self.visible(path, thread)
        if draft is not None:
            draft.discard()
        return draft

    def rename(self, old: str, new: str, thread: int) -> bool:
        """Give the draft that a program sees at a path another one; return whether there is one.

        Drafts below a folder that is renamed move with it.
        """
        draft = self.visible(old, thread)
        with self._lock:
            for each in self._drafts:
                if each is draft:
                    each.path = new
                elif each.path.startswith(f"{old}/"):
                    each.path = new + each.path[len(old) :]
        return draft is not None

    def any_below(self, path: str) -> bool:
        """Whether there are drafts below a folder."""
        with self._lock:
            drafts = [draft for draft in self._drafts if draft.path.startswith(f"{path}/")]
        return any(not draft.hidden for draft in drafts)

    def sweep(self, now: float) -> None:
        """Drop drafts that nobody has opened."""
        with self._lock:
            for draft, added in list(self._drafts.items()):
                if draft.handles == 0 and now - added > _OPEN_WITHIN_SECONDS:
                    del self._drafts[draft]
                    draft.close()
