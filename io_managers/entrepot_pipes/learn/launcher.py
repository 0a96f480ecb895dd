"""Starts a program whose calls that open or look at files ask a supervisor first. Run as a program of its own.

The kernel's seccomp notifications tell the supervisor about the calls, in static programs and all children as well, and
without tracing. The arguments are the descriptor of a socket, to which the listener is sent, and the program's words.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import sys

# Numbers of system calls, by machine.
CALLS: dict[str, dict[str, int]] = {
    "x86_64": {
        "open": 2, "stat": 4, "lstat": 6, "lseek": 8, "rename": 82, "creat": 85, "unlink": 87, "openat": 257,
        "newfstatat": 262, "unlinkat": 263, "renameat": 264, "renameat2": 316, "statx": 332,
    },
    "aarch64": {
        "openat": 56, "lseek": 62, "newfstatat": 79, "unlinkat": 35, "renameat": 38, "renameat2": 276, "statx": 291,
    },
}  # fmt: skip
_NO_NEW_PRIVILEGES, _SECCOMP = 38, {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER = 1, 8
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def listen() -> int:
    """Install the filter in this process; return the listener."""
    machine = platform.machine()
    numbers = list(CALLS[machine].values())
    count = len(numbers)
    code = [(_LOAD, 0, 0, 0)]
    code += [(_EQUAL, count - at, 0, number) for at, number in enumerate(numbers)]
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    filters = (_Instruction * len(code))(*(_Instruction(*line) for line in code))
    program = _Program(len(code), filters)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    listener = int(libc.syscall(_SECCOMP[machine], _SET_FILTER, _NEW_LISTENER, ctypes.byref(program)))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return listener


def main() -> None:
    """Install the filter, pass the listener on, and become the program."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        listener = listen()
    except (OSError, KeyError) as error:
        connection.send(f"E{error}".encode())
        sys.exit(1)
    socket.send_fds(connection, [b"+"], [listener])
    connection.recv(1)  # until the supervisor answers calls
    connection.close()
    os.close(listener)
    os.execvp(sys.argv[2], sys.argv[2:])  # the program that the user named


if __name__ == "__main__":
    main()
