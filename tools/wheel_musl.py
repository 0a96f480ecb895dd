"""Verifies that a wheel needs no library but musl, and tags it as musllinux.

auditwheel does that on machines whose own C library is musl only. Run with the Python of an environment that has
pyelftools: ``wheel_musl.py WHEEL FOLDER PLATFORM``.
"""

from __future__ import annotations

import base64
import hashlib
import io
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

# musl's loader takes this name for the C library that the process has, whatever its file is called.
MUSL = "libc.so"


def needed(binary: bytes) -> set[str]:
    """The libraries that an ELF file names."""
    elf: Any = import_module("elftools.elf.elffile")  # in the environment of the wheels' tools alone
    dynamic = elf.ELFFile(io.BytesIO(binary)).get_section_by_name(".dynamic")
    return {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")} if dynamic is not None else set()


def retag(wheel: Path, folder: Path, platform: str) -> Path:
    """Write the wheel into ``folder`` under its new name; with its own tag and that file's line of RECORD changed.

    Raises:
        ValueError: a binary needs another library; the message names both.
    """
    name, version, python, abi, _ = wheel.stem.split("-")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}-{version}-{python}-{abi}-{platform}.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as source:
        for entry in source.namelist():
            content = source.read(entry)
            if content[:4] == b"\x7fELF" and needed(content) - {MUSL}:
                raise ValueError(f"{entry} needs {', '.join(sorted(needed(content) - {MUSL}))}")
        lines = source.read(f"{info}/WHEEL").decode().splitlines()
        kept = [line for line in lines if line and not line.startswith("Tag: ")]
        tags = "".join(f"{line}\n" for line in [*kept, f"Tag: {python}-{abi}-{platform}"])
        digest = base64.urlsafe_b64encode(hashlib.sha256(tags.encode()).digest()).rstrip(b"=").decode()
        record = "".join(
            f"{info}/WHEEL,sha256={digest},{len(tags.encode())}\n" if line.startswith(f"{info}/WHEEL,") else f"{line}\n"
            for line in source.read(f"{info}/RECORD").decode().splitlines()
        )
        changed = {f"{info}/WHEEL": tags, f"{info}/RECORD": record}
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
            for member in source.infolist():
                made.writestr(member, changed.get(member.filename, source.read(member)), zipfile.ZIP_DEFLATED)
    return target


if __name__ == "__main__":
    retag(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
