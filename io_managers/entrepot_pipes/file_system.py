"""Pipes for fsspec: ``db://NAME``, which pandas, Polars, PyArrow and Dask open as they open other URLs."""

from __future__ import annotations

import io
from typing import Any

from fsspec.spec import AbstractFileSystem

from entrepot_pipes.names import parse
from entrepot_pipes.text_files import open_binary


class PipeFileSystem(AbstractFileSystem):  # type: ignore[misc,unused-ignore]  # fsspec has no types
    """Each name is a file that one program writes while another reads it; see docs/pipes-python.md.

    A name exists as soon as somebody opens it, so that every well-formed one is there; nothing is known about its size.
    """

    protocol = "db"
    root_marker = ""

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = str(path)
        return text.removeprefix("db:").strip("/")

    def unstrip_protocol(self, name: str) -> str:
        """The name as a URL."""
        return f"db://{self._strip_protocol(name)}"

    def _open(  # type: ignore[override,unused-ignore]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, path: str, mode: str = "rb", **kwargs: Any
    ) -> io.BufferedIOBase:
        url = self.unstrip_protocol(path)
        return open_binary(url, parse(url), mode)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """A file whose size is not known.

        Raises:
            InvalidArgument: no pipe has such a name.
        """
        name = self._strip_protocol(path)
        if not name:
            return {"name": "", "type": "directory", "size": 0}
        parse(self.unstrip_protocol(name))
        return {"name": name, "type": "file", "size": None}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """The pipe itself; names that are in use are listed by `entrepot pipe ls`."""
        entries = [self.info(path)] if self._strip_protocol(path) else []
        return entries if detail else [entry["name"] for entry in entries]

    def size(self, path: str) -> int:
        """Refused: how long the text will be is known when it has ended."""
        raise io.UnsupportedOperation(
            f"{self.unstrip_protocol(path)} is a pipe, whose size nobody knows before its end: read to the end"
        )

    def ukey(self, path: str) -> str:
        """Refused: what comes is new each time, so that nothing can be told by a key. Dask asks for one to read.

        Raises:
            UnsupportedOperation: always.
        """
        url = self.unstrip_protocol(path)
        raise io.UnsupportedOperation(
            f"{url} is a pipe, which can be read once, while Dask opens a file for its beginning and for each"
            f" computation: run the program by `entrepot pipe run`, or use dd.from_pandas(pd.read_csv({url!r}),"
            " npartitions=N)"
        )

    def glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """The name itself: the ``?`` of its options is no pattern."""
        name = self._strip_protocol(path)
        return {name: self.info(name)} if kwargs.get("detail") else [name]

    def created(self, path: str) -> Any:
        """Refused: a pipe has no times."""
        raise io.UnsupportedOperation(f"{self.unstrip_protocol(path)} is a pipe, and was never created or modified")

    modified = created
    mkdir = makedirs = lambda self, *args, **kwargs: None
