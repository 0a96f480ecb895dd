"""Reads files through the cache; the implementation of ``Store.read_parquet`` and its siblings."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from entrepot._client.arguments import timeout_seconds
from entrepot._client.session import Session
from entrepot._readers.cache_key import Entry, entry_of
from entrepot._readers.decode_cache import AnyStore, DecodeCache
from entrepot._readers.formats import Format, joined
from entrepot._readers.sources import FileSet, Identity, Source
from entrepot.errors import Timeout

_ATTEMPTS = 5  # to decode files that change meanwhile
_log = logging.getLogger("entrepot")
_warned: set[str] = set()  # kinds of file systems; an addition is one step


class FilesChangedError(Exception):
    """The files' identity is no longer that under which they were to be cached."""


class FileReader:
    """Reads files for one store. Thread-safe.

    Args:
        session: the store's session.
    """

    def __init__(self, session: Session) -> None:
        self._cache = DecodeCache(session)

    def read(self, store: AnyStore, source: Source, decoder: Format, timeout: float | None) -> Any:
        """Return the table that the files contain; see ``Store.read_parquet``."""
        seconds = timeout_seconds(timeout)
        deadline = time.monotonic() + seconds
        label = ""
        for _ in range(_ATTEMPTS):
            files = source.resolve()
            identity = source.identify(files)
            if identity is None:
                return _read_uncached(source, decoder, files)
            entry = entry_of(files, identity, decoder.options)
            label = entry.label
            table = self._cache.find(store, entry)
            if table is not None:
                return table
            try:
                return self._decode(store, source, decoder, files, identity, entry, deadline - time.monotonic())
            except FilesChangedError:
                continue
        raise Timeout(
            f"{label} was changed during each of {_ATTEMPTS} attempts to decode it: read it once it is complete"
        )

    def close(self) -> None:
        """Close the session that this reader has opened. Tables already read stay valid; idempotent."""
        self._cache.close()

    def _decode(
        self,
        store: AnyStore,
        source: Source,
        decoder: Format,
        files: FileSet,
        identity: Identity,
        entry: Entry,
        timeout: float,
    ) -> Any:
        confirm = partial(_confirm, source, files, identity)

        def parts() -> Iterator[Any]:
            if identity.wait_settled():
                confirm()
            try:
                yield from decoder.parts(source, files)
            except Exception:
                confirm()  # half-written or half-replaced files fail in many ways, none of which says so
                raise

        return self._cache.decode(store, entry, parts, confirm, max(timeout, 0.0))


def _confirm(source: Source, files: FileSet, identity: Identity) -> None:
    """Check that the files are what they were.

    Raises:
        FilesChangedError: they are not.
    """
    try:
        unchanged = source.resolve() == files and source.identify(files) == identity
    except FileNotFoundError:
        unchanged = False
    if not unchanged:
        raise FilesChangedError


def _read_uncached(source: Source, decoder: Format, files: FileSet) -> Any:
    if source.label not in _warned:
        _warned.add(source.label)
        _log.warning(
            "the file system %s reports neither a version nor a modification time for its files, such as %s: every "
            "read decodes them again",
            source.label,
            files.files[0],
        )
    return joined(list(decoder.parts(source, files)))
