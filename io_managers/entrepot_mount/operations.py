"""FUSE's requests: each is carried out by :class:`SessionFiles`, in a thread if it may have to wait for the store.

Reading and writing open files happens in the event loop itself: it only passes on a view of shared memory, which the
kernel copies to where it wants it.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyfuse3
import trio

from entrepot_mount.errors import number_of

if TYPE_CHECKING:
    from entrepot_io.filesystem.lookup import File

    from entrepot_mount.nodes import Node
    from entrepot_mount.session_files import Handle, SessionFiles

Result = TypeVar("Result")

_THREADS = 16  # requests that wait for the store at the same time
_FOREVER = 86400.0  # seconds; attributes of a version of an object never change
_BLOCK = 4096
_NAME_MAX = 255


class Operations(pyfuse3.Operations):
    """What the kernel asks for. Runs in one trio event loop.

    Args:
        files: what is mounted.
    """

    supports_dot_lookup = False

    def __init__(self, files: SessionFiles) -> None:
        super().__init__()
        self._files = files
        self._limiter = trio.CapacityLimiter(_THREADS)
        self._numbers = itertools.count(1)
        self._handles: dict[int, Handle] = {}
        self._folders: dict[int, tuple[str, list[tuple[str, File | None]]]] = {}
        self._started = time.time_ns()

    async def _run(self, operation: str, path: str, call: Callable[..., Result], *arguments: Any) -> Result:
        """Call something in a thread; its errors are logged, and answered by their number."""

        def answered() -> Result:
            try:
                return call(*arguments)
            except Exception as error:
                raise pyfuse3.FUSEError(number_of(error, operation, path)) from error

        return await trio.to_thread.run_sync(answered, limiter=self._limiter)

    # --- looking

    async def lookup(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        path = self._path(parent_inode, name)
        node = await self._run("lookup", path, self._files.look_up, path, ctx.pid)
        return self._attributes(node)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for inode, count in inode_list:
            self._files.nodes.forget(inode, count)

    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        node = self._files.nodes[inode]
        if node.file is not None and node.size is None:
            await self._run("getattr", node.path, self._files.size_of, node)
        return self._attributes(node)

    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        path = self._files.nodes[inode].path
        number = next(self._numbers)
        self._folders[number] = path, await self._run("opendir", path, self._files.entries, path)
        return number

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        path, entries = self._folders[fh]
        prefix = f"{path}/" if path else ""
        nodes = self._files.nodes
        for position in range(start_id, len(entries)):
            name, file = entries[position]
            node = nodes.folder(prefix + name) if file is None else nodes.view(prefix + name, file)
            if not pyfuse3.readdir_reply(token, name.encode(), self._attributes(node), position + 1):
                nodes.forget(node.number, 1)
                break

    async def releasedir(self, fh: int) -> None:
        self._folders.pop(fh, None)

    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        status = await self._run("statfs", "", self._files.status)
        data = pyfuse3.StatvfsData()
        data.f_bsize = data.f_frsize = _BLOCK
        data.f_blocks = int(status["capacity_bytes"]) // _BLOCK
        data.f_bfree = data.f_bavail = max(int(status["capacity_bytes"]) - int(status["used_bytes"]), 0) // _BLOCK
        data.f_files = int(status["objects"])
        data.f_namemax = _NAME_MAX
        return data

    # --- open files

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        node = self._files.nodes[inode]
        handle = await self._run("open", node.path, self._files.open, node, flags, ctx.pid)
        return self._opened(handle)

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: pyfuse3.RequestContext
    ) -> tuple[pyfuse3.FileInfo, pyfuse3.EntryAttributes]:
        path = self._path(parent_inode, name)
        handle = await self._run("create", path, self._files.create, path, ctx.pid)
        return self._opened(handle), self._attributes(handle.node)

    async def read(self, fh: int, off: int, size: int) -> Any:
        handle = self._handles[fh]
        try:
            return handle.read(off, size)
        except Exception as error:
            raise pyfuse3.FUSEError(number_of(error, "read", handle.node.path)) from error

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        handle = self._handles[fh]
        try:
            return handle.write(off, buf)
        except Exception as error:
            raise pyfuse3.FUSEError(number_of(error, "write", handle.node.path)) from error

    async def flush(self, fh: int) -> None:
        handle = self._handles[fh]
        if handle.writable:
            await self._run("close", handle.node.path, self._files.flush, handle)

    async def fsync(self, fh: int, datasync: bool) -> None:
        """Does nothing: a file is stored when it is closed, and what is stored is in memory."""

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """Does nothing: names are bound at once."""

    async def release(self, fh: int) -> None:
        handle = self._handles.pop(fh)
        await self._run("close", handle.node.path, self._files.release, handle)

    # --- changes

    async def setattr(
        self,
        inode: int,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        """Change a file's size. Owner, mode and times are those of the store; setting them does nothing."""
        handle = None if fh is None else self._handles.get(fh)
        node = self._files.nodes[inode] if handle is None else handle.node
        if fields.update_size:
            await self._run("truncate", node.path, self._files.truncate, node, attr.st_size)
        changed = self._attributes(node)
        if fields.update_size and node.draft is None:
            changed.st_size, changed.attr_timeout = attr.st_size, 0
        return changed

    async def unlink(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        path = self._path(parent_inode, name)
        await self._run("unlink", path, self._files.delete, path, ctx.pid)

    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: pyfuse3.RequestContext,
    ) -> None:
        if flags & ~pyfuse3.RENAME_NOREPLACE:
            raise pyfuse3.FUSEError(errno.EINVAL)
        old, new = self._path(parent_inode_old, name_old), self._path(parent_inode_new, name_new)

        def renamed() -> None:
            self._files.rename(old, new, ctx.pid, replace=not flags & pyfuse3.RENAME_NOREPLACE)

        await self._run("rename", old, renamed)

    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        path = self._path(parent_inode, name)
        return self._attributes(await self._run("mkdir", path, self._files.make_folder, path))

    async def rmdir(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        path = self._path(parent_inode, name)
        await self._run("rmdir", path, self._files.remove_folder, path)

    # --- helpers

    def _path(self, parent: int, name: bytes) -> str:
        folder = self._files.nodes[parent].path
        try:
            text = name.decode()
        except UnicodeDecodeError:
            raise pyfuse3.FUSEError(errno.EILSEQ) from None  # names of objects are text
        return f"{folder}/{text}" if folder else text

    def _opened(self, handle: Handle) -> pyfuse3.FileInfo:
        number = next(self._numbers)
        self._handles[number] = handle
        return pyfuse3.FileInfo(fh=number, keep_cache=handle.draft is None)

    def _attributes(self, node: Node) -> pyfuse3.EntryAttributes:
        """An inode's attributes. A size that is not known yet is 0 for now, and asked for before it is used."""
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = node.number
        entry.entry_timeout = 0
        immutable = node.file is not None and node.size is not None
        entry.attr_timeout = _FOREVER if immutable else 0
        writable = 0 if self._files.options.read_only else stat.S_IWUSR
        if node.is_folder:
            entry.st_mode = stat.S_IFDIR | stat.S_IRUSR | stat.S_IXUSR | writable
            entry.st_nlink = 2
        else:
            entry.st_mode = stat.S_IFREG | stat.S_IRUSR | writable
            entry.st_nlink = 1
            entry.st_size = (node.size or 0) if node.draft is None else node.draft.size
            entry.st_blocks = (entry.st_size + 511) // 512
        entry.st_uid, entry.st_gid = os.geteuid(), os.getegid()
        entry.st_blksize = 1 << 20
        changed = self._started if node.is_folder else time.time_ns()
        if node.file is not None:
            changed = int(node.file.info.created * 1e9)
        entry.st_atime_ns = entry.st_mtime_ns = entry.st_ctime_ns = changed
        return entry
