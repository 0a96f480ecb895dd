"""Memory for NumPy and Arrow values from the store while they are being made: see ``Store.allocating``."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, cast

from entrepot import _core
from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

NUMPY_VERSIONS = ((2, 0), (2, 4))
"""First and last release of NumPy whose interface for allocators was tested."""
PYARROW_VERSIONS = ((20, 0), (26, 0))
"""First and last release of pyarrow whose memory pools were tested. Their binary interface differs before 20."""

_lock = threading.Lock()
_installed: dict[str, bool] = {}  # guarded by _lock; whether a library takes memory from the store, by name
_untested: dict[str, str] = {}  # guarded by _lock; what is still to be said of releases that were not tested, by name
_warns = False  # guarded by _lock; whether somebody wants to know of them


class Allocating:
    """A time during which NumPy and Arrow take memory for large values from a store; a context manager.

    States::

        new ──start──▶ active ──stop──▶ stopped

    Args:
        client: the store's client.
        entered: what ``with`` returns.
        warn: whether to warn of a library's release that was not tested.

    >>> import entrepot
    >>> import numpy as np
    >>> store = entrepot.connect()
    >>> with store.allocating():
    ...     made = np.ones(1_000_000)  # in the store's memory
    >>> oid = store.put(made)  # seals it where it is
    """

    __slots__ = ("_client", "_entered", "_number", "_stopped", "_warn")

    def __init__(self, client: _core.Client, entered: Any, *, warn: bool = True) -> None:
        self._client = client
        self._entered = entered
        self._warn = warn
        self._number: int | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin: from now on, in all threads of this process, until ``stop``.

        Raises:
            InvalidArgument: it was started before.
            StoreUnavailable: the store is closed.

        Warns:
            RuntimeWarning: once per library, if its release was not tested, unless that is not wanted.
        """
        global _warns
        if self._number is not None or self._stopped:
            raise InvalidArgument("this was started before: call store.allocating() again")
        for library, install in _LIBRARIES.items():
            _install_when_imported(library, install)
        if self._warn:
            with _lock:
                _warns = True
            _warn_of_untested()
        self._number = _core.start_allocating(self._client)

    def stop(self) -> None:
        """End. Values stay where they are; stopping twice is harmless."""
        self._stopped = True
        if self._number is not None:
            number, self._number = self._number, None
            _core.stop_allocating(number)

    def __enter__(self) -> Any:
        self.start()
        return self._entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _install_when_imported(library: str, install: Callable[[ModuleType], bool]) -> None:
    with _lock:
        if library in _installed:
            return
        module = sys.modules.get(library)
        if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
            if not any(isinstance(finder, _ImportWatcher) for finder in sys.meta_path):
                sys.meta_path.insert(0, _ImportWatcher())
            return
        _installed[library] = install(module)


def _is_tested(module: ModuleType, versions: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    """Whether a library's release is between those tested; if not, that is noted. Requires _lock."""
    release = tuple(int(part) for part in module.__version__.split(".")[:2])
    first, last = versions
    if first <= release <= last:
        return True
    _untested[module.__name__] = (
        f"store.allocating() was tested with {module.__name__} {first[0]}.{first[1]} to {last[0]}.{last[1]}, not with "
        f"{module.__version__}: its values are made in memory of the process, and copied into the store by put"
    )
    return False


def _warn_of_untested() -> None:
    """Warn, once per process and library, if somebody wants to know."""
    with _lock:
        messages = list(_untested.values()) if _warns else []
        if messages:
            _untested.clear()
    for message in messages:
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def _install_numpy(numpy: ModuleType) -> bool:
    if not _is_tested(numpy, NUMPY_VERSIONS):
        return False
    core = getattr(numpy, "_core", None) or numpy.core
    return _core.install_numpy_handler(core.multiarray._ARRAY_API)


def _install_pyarrow(pyarrow: ModuleType) -> bool:
    if not _is_tested(pyarrow, PYARROW_VERSIONS):
        return False
    pool = _core.arrow_pool(pyarrow.lib.__pyx_capi__, pyarrow.default_memory_pool())
    if pool is None:
        return False
    pyarrow.set_memory_pool(pool)
    return True


_LIBRARIES: dict[str, Callable[[ModuleType], bool]] = {"numpy": _install_numpy, "pyarrow": _install_pyarrow}


class _ImportWatcher:
    """A finder of ``sys.meta_path`` that installs the allocator of a library right after its first import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _LIBRARIES or fullname in _installed:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = cast("Any", _InstallingLoader(spec.loader))
                return spec
        return None


class _InstallingLoader:
    """Loads a module with its own loader, then installs the allocator.

    Args:
        loader: the module's own.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # what the module and others see from here on
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        with _lock:
            if module.__name__ not in _installed:
                _installed[module.__name__] = _LIBRARIES[module.__name__](module)
        _warn_of_untested()
