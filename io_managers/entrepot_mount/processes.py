"""What a program that writes a file is, whether it still has it open, and whether it was killed."""

from __future__ import annotations

from pathlib import Path

_EXIT_CODE_FIELD = 52  # of /proc/PID/stat, proc(5), counted from 1
_SIGNAL_BITS = 0x7F


def process_of(thread: int) -> int:
    """The process of a thread; 0 if it cannot be told, as for one of another PID namespace."""
    try:
        for line in Path(f"/proc/{thread}/status").read_text().splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0


def was_killed(process: int) -> bool:
    """Whether a signal is ending, or has ended, a process. The kernel closes its files before it is gone, so that this
    can be asked when a file is closed."""
    if not process:
        return False
    try:
        text = Path(f"/proc/{process}/stat").read_text()
        code = int(text.rpartition(")")[2].split()[_EXIT_CODE_FIELD - 3])
    except (OSError, ValueError, IndexError):  # it has ended, and been waited for: its files were closed long ago
        return False
    return bool(code & _SIGNAL_BITS)


def has_open(process: int, mount_id: int, inode: int) -> bool:
    """Whether a process has a descriptor of a file.

    The kernel reports each closing of a descriptor alike: of the last one, of a copy that a shell has made, and of
    those that a child has inherited. A descriptor that is being closed is not listed any more.

    Args:
        process: its ID; 0: unknown.
        mount_id, inode: of the file.
    """
    wanted = {f"ino:{inode}", f"mnt_id:{mount_id}"}
    try:
        descriptors = list(Path(f"/proc/{process}/fdinfo").iterdir()) if process else []
    except OSError:  # it has ended, or is another user's
        return False
    for descriptor in descriptors:
        try:
            lines = {"".join(line.split()) for line in descriptor.read_text().splitlines()}
        except OSError:  # closed meanwhile
            continue
        if wanted <= lines:
            return True
    return False
