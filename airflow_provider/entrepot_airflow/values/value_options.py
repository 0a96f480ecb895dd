"""Options for one value that a task returns or pushes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from entrepot.errors import InvalidArgument
from entrepot_io.sessions import parse_ttl
from entrepot_io.usage_hints import UsageHints, parse_usage_hints

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class ValueOptions:
    """Options of one value.

    Attributes:
        name: that the object also gets in its session; a later value takes it over. None: only that of its XCom.
        locality_set: that it belongs to.
        durable: whether it is also written to the durable tier before the task succeeds.
        ttl: seconds that it lives after its last use, in a session of its own, whatever happens to its DAG run. None:
            as long as the run's session.
        inline: True: it stays in Airflow's database, False: it never does; None: small plain values do.
    """

    name: str | None = None
    locality_set: UsageHints | None = None
    durable: bool = False
    ttl: float | None = None
    inline: bool | None = None


@dataclass(frozen=True)
class StoredValue:
    """A value with its options, as the XCom backend gets it. Tasks that read it get the value alone."""

    value: Any
    options: ValueOptions


def stored(
    value: T,
    *,
    name: str | None = None,
    locality_set: str | Mapping[str, Any] | None = None,
    durable: bool = False,
    ttl: float | str | None = None,
    inline: bool | None = None,
) -> T:
    """Return a value with options for how it is stored, to be returned or pushed by a task.

        return stored(frame, name="orders", ttl="7d")

    Until it is pushed, it is no longer the value itself: use this on the last line. Values that other tasks are mapped
    over cannot have options, as Airflow has to see their length.

    Args:
        value: anything that a task may return; with ``multiple_outputs``, the entries of its dictionary.
        name: that the object also gets in the session of the DAG run, besides that of its XCom, for
            ``EntrepotHook(session=...)``, sensors, and other programs. A later value takes it over.
        locality_set: a name, or a mapping with ``name`` and the attributes of ``Store.locality_set``.
        durable: whether it is also written to the durable tier (``ENTREPOT_DURABLE``) before the task succeeds.
        ttl: how long it lives after its last use, in seconds or as ``"7d"``, even if its DAG run is deleted before.
        inline: True: keep it in Airflow's database, if it is plain JSON; False: never; default: below
            ``[entrepot] inline_below`` bytes.

    Raises:
        InvalidArgument: a malformed option, or ``inline=True`` with one that needs an object.

    >>> stored([1, 2], name="orders", ttl="7d").options.ttl  # in seconds
    604800.0
    """
    options = ValueOptions(
        name, parse_usage_hints(locality_set), durable, None if ttl is None else parse_ttl(ttl), inline
    )
    if inline and options != ValueOptions(inline=True):
        raise InvalidArgument("inline=True keeps the value in Airflow's database: no other option applies to it")
    return StoredValue(value, options)  # type: ignore[return-value]


def store_options(
    *,
    name: str | None = None,
    locality_set: str | Mapping[str, Any] | None = None,
    durable: bool = False,
    ttl: float | str | None = None,
    inline: bool | None = None,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a task's function: what it returns is stored with these options.

        @task
        @store_options(locality_set="features", ttl="7d")
        def load(): ...

    Args, errors: as for :func:`stored`.

    >>> @store_options(locality_set="features", ttl="7d")
    ... def load():
    ...     return [1, 2]
    >>> load().options.locality_set.name
    'features'
    """
    options: dict[str, Any] = {
        "name": name,
        "locality_set": locality_set,
        "durable": durable,
        "ttl": ttl,
        "inline": inline,
    }
    stored(None, **options)  # an error should be one of the DAG, not of its tasks

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            result = function(*args, **kwargs)
            return result if result is None else stored(result, **options)

        return call

    return decorate


def split(value: Any) -> tuple[Any, ValueOptions]:
    """Return a value as a task pushed it, without its options, and these."""
    if isinstance(value, StoredValue):
        return value.value, value.options
    return value, ValueOptions()


def without_options(value: Any) -> Any:
    """Return a dictionary of a task with ``multiple_outputs`` whose entries have no options any more."""
    if type(value) is dict and any(isinstance(entry, StoredValue) for entry in value.values()):
        return {key: split(entry)[0] for key, entry in value.items()}
    return value
