"""The files of a session, as the operations of a file system; without FUSE.

All methods may be called from several threads. They raise ``OSError`` and the store's errors.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot.errors import ObjectNotFound
from entrepot_io import connections
from entrepot_io.filesystem import lookup
from entrepot_io.sessions import DEFAULT_TTL_SECONDS

from entrepot_mount import listing, storing
from entrepot_mount.draft_registry import DraftRegistry
from entrepot_mount.drafts import Draft
from entrepot_mount.encoding import content_of
from entrepot_mount.nodes import Node, NodeTable
from entrepot_mount.processes import has_open, process_of, was_killed
from entrepot_mount.view_cache import ViewCache

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot_io.filesystem.lookup import File
    from typing_extensions import Buffer

    from entrepot_mount.content import Content

_MAX_PATH_BYTES = 255  # names of objects
_ATTEMPTS = 16  # to look up a name whose object is replaced again and again


@dataclass(frozen=True, slots=True)
class MountOptions:
    """What is mounted, and how.

    Attributes:
        address, scope, session: of the store.
        read_only: whether changes are refused.
        decode: whether files with the suffix of a format are stored as tables and arrays.
    """

    address: str
    scope: str
    session: str
    read_only: bool = False
    decode: bool = True


@dataclass(frozen=True, slots=True)
class Handle:
    """An open file: of a version of an object, or of a draft."""

    node: Node
    content: Content | None
    draft: Draft | None
    writable: bool

    def read(self, offset: int, size: int) -> Buffer:
        """At most ``size`` bytes from ``offset`` on."""
        if self.content is not None:
            return self.content.read(offset, size)
        assert self.draft is not None
        return self.draft.read(offset, size)

    def write(self, offset: int, data: bytes) -> int:
        """Write bytes into the draft."""
        if self.draft is None or not self.writable:
            raise OSError(errno.EBADF, "not open for writing", self.node.path)
        return self.draft.write(offset, data)


class SessionFiles:
    """The session as a tree of files.

    Args:
        options: what is mounted.

    Attributes:
        options: as given.
        nodes: the inodes.
        mount_id: of the mount, in this process's mount namespace. Set once it is mounted.
    """

    def __init__(self, options: MountOptions) -> None:
        self.options = options
        self.nodes = NodeTable()
        self.mount_id = 0
        self._cache = ViewCache(options.address)
        self._drafts = DraftRegistry()
        self._lock = threading.Lock()
        self._session: Store | None = None  # guarded by _lock
        self._folders: set[str] = set()  # guarded by _lock: folders that remain although they are empty
        self._capacity = 0  # of the store, guarded by _lock

    def store(self) -> Store:
        """The session, in the store that is now at the address.

        Raises:
            StoreUnavailable: there is none.
        """
        with self._lock:
            session = self._session
        if session is None or session.closed:
            ttl = None if self.options.session == "" else DEFAULT_TTL_SECONDS
            session = connections.session_store(self.options.address, self.options.scope, self.options.session, ttl)
            with self._lock:
                self._session = session
                self._capacity = int(session.status()["capacity_bytes"])
        else:
            raw_objects.ensure_connected(session)
        return session

    # --- looking

    def look_up(self, path: str, thread: int) -> Node:
        """The inode of a path, with its size, as a program sees it.

        Args:
            path: below the mount.
            thread: of the program.

        Raises:
            FileNotFoundError: there is nothing.
        """
        draft = self._drafts.visible(path, thread)
        if draft is not None:
            return self.nodes.draft(draft)
        for _ in range(_ATTEMPTS):
            store = self.store()
            file = self._file(store, path)
            if file is None:
                if self._is_folder(store, path):
                    return self.nodes.folder(path)
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = self.nodes.view(path, file)
            try:
                self.size_of(node)
            except (OSError, ObjectNotFound) as error:
                self.nodes.forget(node.number, 1)
                if isinstance(error, ObjectNotFound) or error.errno == errno.ESTALE:
                    continue  # replaced since it was found
                raise
            return node
        raise OSError(errno.EBUSY, "the object was replaced again and again", path)

    def size_of(self, node: Node) -> int:
        """A file's size; 0 for folders. A version of an object that has not been read yet is encoded for it."""
        if node.draft is not None:
            return node.draft.size
        if node.file is None:
            return 0
        if node.size is None:
            node.content = content = content_of(node.file, self._cache, node.path)
            node.size = content.size
        return node.size

    def entries(self, path: str) -> list[tuple[str, File | None]]:
        """The names in a folder, with the files that they are; None: a folder."""
        shown = dict(listing.entries(self.store(), path))
        prefix = f"{path}/" if path else ""
        with self._lock:
            kept = [folder[len(prefix) :] for folder in self._folders if folder.startswith(prefix)]
        for rest in kept:
            shown.setdefault(rest.partition("/")[0], None)
        return list(shown.items())

    # --- open files

    def open(self, node: Node, flags: int, thread: int) -> Handle:
        """Open a file.

        To write to a version of an object, a program needs another inode, that of a draft. Therefore ``ESTALE``, upon
        which the kernel looks the path up again, finds the draft, and opens that.

        Args:
            node: what is to be opened.
            flags: of ``open(2)``.
            thread: of the program.

        Raises:
            OSError: ``ESTALE``: see above; also if the object was replaced. ``EROFS``, ``EISDIR``, ...
        """
        writable = flags & os.O_ACCMODE != os.O_RDONLY
        if node.is_folder:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), node.path)
        if writable:
            self._check_writable(node.path)
        if node.draft is not None:
            if writable and flags & os.O_TRUNC:
                node.draft.truncate(0, pending=True)
            self._drafts.opened(node.draft)
            handle = Handle(node, None, node.draft, writable)
        else:
            try:
                content = self._content(node)
            except ObjectNotFound as error:
                raise OSError(errno.ESTALE, "the object was deleted", node.path) from error
            if writable:
                self._new_draft(node.path, thread, None if flags & os.O_TRUNC else content)
                raise OSError(errno.ESTALE, "a draft takes its place", node.path)
            handle = Handle(node, content, None, False)
        self.nodes.opened(node)
        return handle

    def create(self, path: str, thread: int) -> Handle:
        """Make a new file, open for writing; its inode has one more reference."""
        self._check_writable(path)
        _check_length(path)
        draft = self._new_draft(path, thread, None)
        node = self.nodes.draft(draft)
        self._drafts.opened(draft)
        self.nodes.opened(node)
        return Handle(node, None, draft, True)

    def flush(self, handle: Handle) -> None:
        """A descriptor of an open file was closed: store what has been written, if its writer has no other.

        Raises:
            OSError, StoreFull, ...: it cannot be stored.
        """
        self._store_draft(handle, last=False)

    def release(self, handle: Handle) -> None:
        """The last descriptor of an open file is closed.

        Raises:
            OSError, StoreFull, ...: it cannot be stored.
        """
        try:
            if handle.draft is not None and self._drafts.is_last(handle.draft):
                self._store_draft(handle, last=True)
        finally:
            if handle.draft is not None:
                self._drafts.closed(handle.draft)
            self.nodes.closed(handle.node)

    def _store_draft(self, handle: Handle, *, last: bool) -> None:
        draft = handle.draft
        if draft is None or not handle.writable:
            return
        if was_killed(draft.owner):
            draft.discard()
        elif not last:
            if has_open(draft.owner, self.mount_id, handle.node.number):
                return  # a child has closed what it inherited, or a shell a copy
            last = draft.owner != 0
        draft.store(self._put, last=last)

    def _put(self, path: str, data: memoryview) -> None:
        storing.store_file(self.store(), path, data, decode=self.options.decode)

    # --- changes

    def truncate(self, node: Node, size: int) -> None:
        """Cut or extend a file that may not be open."""
        self._check_writable(node.path)
        if node.draft is not None:
            return node.draft.truncate(size)
        if node.is_folder:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), node.path)
        draft = Draft(node.path, 0, self._limit(), self._content(node))
        try:
            draft.truncate(size)
            draft.store(self._put, last=True)
        finally:
            draft.close()
        return None

    def delete(self, path: str, thread: int) -> None:
        """Delete a file."""
        self._check_writable(path)
        draft = self._drafts.remove(path, thread)
        store = self.store()
        file = self._file(store, path)
        if file is not None:
            storing.delete_file(store, file, path)
        elif draft is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._keep_folder(path)

    def rename(self, old: str, new: str, thread: int, *, replace: bool = True) -> None:
        """Rename a file or a folder."""
        self._check_writable(old)
        _check_length(new)
        store = self.store()
        if not replace and (self._file(store, new) is not None or self._is_folder(store, new)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        moved = self._drafts.rename(old, new, thread)
        file = self._file(store, old)
        if file is not None:
            if not storing.rename_file(store, file, old, new):
                content = content_of(file, self._cache, old)
                storing.store_file(store, new, content.whole(), decode=self.options.decode)
                storing.delete_file(store, file, old)
        elif not moved and self._is_folder(store, old):
            if self.entries(new):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
            storing.rename_folder(store, old, new)
            self._rename_folders(old, new)
        elif not moved:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self.nodes.renamed(old, new)
        self._keep_folder(old)

    def make_folder(self, path: str) -> Node:
        """Make a folder, which remains, while this is mounted, until it is removed; its inode has one more
        reference."""
        self._check_writable(path)
        _check_length(path)
        store = self.store()
        if self._file(store, path) is not None or self._is_folder(store, path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with self._lock:
            self._folders.add(path)
        return self.nodes.folder(path)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        self._check_writable(path)
        if self.entries(path) or self._drafts.any_below(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        with self._lock:
            self._folders.discard(path)
        self._keep_folder(path)

    def status(self) -> dict[str, Any]:
        """The store's status."""
        return self.store().status()

    def sweep(self) -> None:
        """Return what is not needed any more: encoded files of former content, sizes' contents, drafts never opened."""
        self.nodes.release_unopened()
        self._drafts.sweep(time.monotonic())
        self._cache.delete_stale(self.store())

    # --- helpers

    def _file(self, store: Store, path: str) -> File | None:
        file = lookup.find_file(store, path) if path else None
        return file if file is not None and listing.is_shown(file) else None

    def _is_folder(self, store: Store, path: str) -> bool:
        with self._lock:
            if any(folder == path or folder.startswith(f"{path}/") for folder in self._folders):
                return True
        return not path or lookup.is_folder(store, path)

    def _content(self, node: Node) -> Content:
        content = node.content
        if content is None:
            assert node.file is not None
            node.content = content = content_of(node.file, self._cache, node.path)
        return content

    def _new_draft(self, path: str, thread: int, seed: Content | None) -> Draft:
        draft = Draft(path, process_of(thread), self._limit(), seed)
        self._drafts.add(draft, time.monotonic())
        return draft

    def _limit(self) -> int:
        self.store()
        with self._lock:
            return self._capacity

    def _check_writable(self, path: str) -> None:
        if self.options.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def _keep_folder(self, path: str) -> None:
        """Keep the folder of something that is gone, as other file systems do; here it would vanish with its last
        file."""
        parent = path.rpartition("/")[0]
        if parent:
            with self._lock:
                self._folders.add(parent)

    def _rename_folders(self, old: str, new: str) -> None:
        with self._lock:
            moved = {folder for folder in self._folders if folder == old or folder.startswith(f"{old}/")}
            self._folders -= moved
            self._folders |= {new, *(new + folder[len(old) :] for folder in moved)}


def _check_length(path: str) -> None:
    if len(path.encode()) > _MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, f"names of objects have at most {_MAX_PATH_BYTES} bytes", path)
