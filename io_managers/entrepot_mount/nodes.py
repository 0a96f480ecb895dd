"""Inodes: what the kernel knows, and for how long.

Each version of each file has an inode of its own, so that a program that has a file open, or mapped, keeps what it has
opened, whatever happens to the object; and that the kernel may cache pages for ever, because they never change. A draft
has an inode of its own, too. A name is looked up anew whenever it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entrepot_io.filesystem.lookup import File

    from entrepot_mount.content import Content
    from entrepot_mount.drafts import Draft

ROOT = 1


@dataclass(slots=True)
class Node:
    """An inode. What may change is guarded by the lock of its table.

    Attributes:
        number: its number.
        path: of the file or the folder, below the mount; empty: the mount itself.
        file: the version of the object that it shows; None: a folder or a draft.
        draft: the draft, if it is one.
        size: of the file; None: not known yet.
        lookups: how many references the kernel has.
        handles: how many descriptors are open.
        content: while it is open for reading, and for a while after its size was asked for.
        aging: whether a sweep has seen its content while it was not open.
    """

    number: int
    path: str
    file: File | None = None
    draft: Draft | None = None
    size: int | None = None
    lookups: int = 0
    handles: int = 0
    content: Content | None = None
    aging: bool = False
    key: Hashable = field(default=None, repr=False)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.file is None and self.draft is None


class NodeTable:
    """All inodes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        root = Node(ROOT, "", lookups=1, key=("folder", ""))
        self._nodes: dict[int, Node] = {ROOT: root}  # guarded by _lock
        self._by_key: dict[Hashable, Node] = {root.key: root}  # guarded by _lock
        self._next = ROOT + 1  # guarded by _lock

    def __getitem__(self, number: int) -> Node:
        with self._lock:
            return self._nodes[number]

    def __len__(self) -> int:
        with self._lock:
            return len(self._nodes)

    def folder(self, path: str) -> Node:
        """The inode of a folder, with one more reference."""
        return self._referenced(("folder", path), Node(0, path))

    def view(self, path: str, file: File) -> Node:
        """The inode of a version of a file, with one more reference."""
        suffix = "" if file.format is None else file.format.suffix
        key = ("view", path, file.store.instance_id, file.info.id, file.info.generation, suffix)
        return self._referenced(key, Node(0, path, file=file, size=file.info.nbytes if file.format is None else None))

    def draft(self, draft: Draft) -> Node:
        """The inode of a draft, with one more reference."""
        return self._referenced(("draft", id(draft)), Node(0, draft.path, draft=draft))

    def forget(self, number: int, count: int) -> None:
        """The kernel has dropped references."""
        with self._lock:
            node = self._nodes.get(number)
            if node is not None and node.number != ROOT:
                node.lookups -= count
                self._drop_unused(node)

    def opened(self, node: Node) -> None:
        """A descriptor was opened."""
        with self._lock:
            node.handles += 1

    def closed(self, node: Node) -> None:
        """A descriptor was closed."""
        with self._lock:
            node.handles -= 1
            if node.handles == 0:
                node.content = None
            self._drop_unused(node)

    def release_unopened(self) -> None:
        """Drop contents that were made to learn a file's size, unless it was opened until the second call."""
        with self._lock:
            for node in self._nodes.values():
                if node.handles == 0 and node.content is not None:
                    if node.aging:
                        node.content = None
                    node.aging = not node.aging

    def renamed(self, old: str, new: str) -> None:
        """What was below a path, or there, is below another one."""
        with self._lock:
            for node in list(self._nodes.values()):
                if node.path == old or node.path.startswith(f"{old}/"):
                    node.path = new + node.path[len(old) :]
                    if node.is_folder:
                        self._by_key.pop(node.key, None)
                        node.key = ("folder", node.path)
                        self._by_key[node.key] = node

    def _referenced(self, key: Hashable, new: Node) -> Node:
        with self._lock:
            node = self._by_key.get(key)
            if node is None:
                node = new
                node.number, node.key = self._next, key
                self._next += 1
                self._nodes[node.number] = self._by_key[key] = node
            node.lookups += 1
            return node

    def _drop_unused(self, node: Node) -> None:
        if node.lookups <= 0 and node.handles <= 0:
            self._nodes.pop(node.number, None)
            if self._by_key.get(node.key) is node:
                del self._by_key[node.key]
