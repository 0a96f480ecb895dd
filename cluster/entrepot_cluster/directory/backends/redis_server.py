"""A directory in Redis: one sorted set that is read in the order of its members' bytes, and scripts that change it.

A member is key, value and the length of the key in two bytes. Since no key is the beginning of another one, members
are in the order of their keys. All keys of Redis begin with ``entrepot:{NAME}:``, so that a cluster of Redis keeps them
together:

    entries     sorted set, all scores 0: the members
    leases      sorted set: when the lease of a number ends, in milliseconds since 1970 by Redis's clock
    tokens      hash: the token of the lease of a number
    sequence    integer
    version     integer, increased by each change of an instance
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

import redis
from entrepot.errors import AccessDenied, DirectoryUnavailable
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from entrepot_cluster.directory.backends.interface import Entry, Lease, LeaseEnded, ServerState, Snapshot
from entrepot_cluster.directory.backends.polling import PollingSubscription
from entrepot_cluster.directory.codec import NUMBER_BYTES, NUMBERS, RECORDS, successor

T = TypeVar("T")
PORTION = 1000  # entries in one script, which Redis runs without interruption
_KEYS = ("entries", "leases", "tokens", "sequence", "version")
_LENGTH_BYTES = 2

_NOW = """
local entries, leases, tokens, sequence, version = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function held(number, token)
  local ends = redis.call('ZSCORE', leases, number)
  return ends and tonumber(ends) > now and redis.call('HGET', tokens, number) == token
end
local function changed()
  redis.call('SET', version, now, 'NX')  -- not from 0 again after the data were deleted
  redis.call('INCR', version)
end
"""
# The arguments from `at` on: how many changes; for each, the bounds of its key, and the new member or ''.
_CHANGE = """
local function change(at)
  for i = 0, tonumber(ARGV[at]) - 1 do
    local low, high, member = ARGV[at + 1 + 3 * i], ARGV[at + 2 + 3 * i], ARGV[at + 3 + 3 * i]
    local present = false
    for _, old in ipairs(redis.call('ZRANGEBYLEX', entries, low, high)) do
      if old == member then present = true else redis.call('ZREM', entries, old) end
    end
    if member ~= '' and not present then redis.call('ZADD', entries, 0, member) end
  end
end
"""
# number, token ('': none needed), whether an instance changes, changes
_WRITE = (
    _NOW
    + _CHANGE
    + """
if ARGV[2] ~= '' and not held(ARGV[1], ARGV[2]) then return 0 end
change(4)
if ARGV[3] == '1' then changed() end
return 1
"""
)
# how many comparisons; for each, the bounds of its key, and the member or ''; then changes
_SWAP = (
    _NOW
    + _CHANGE
    + """
local count = tonumber(ARGV[1])
for i = 0, count - 1 do
  local found = redis.call('ZRANGEBYLEX', entries, ARGV[2 + 3 * i], ARGV[3 + 3 * i])
  if (found[1] or '') ~= ARGV[4 + 3 * i] then return 0 end
end
change(2 + 3 * count)
changed()
return 1
"""
)
_GRANT = (
    _NOW
    + """
redis.call('HSET', tokens, ARGV[1], ARGV[2])
redis.call('ZADD', leases, now + ARGV[3], ARGV[1])
changed()
return 1
"""
)
_KEEP = (
    _NOW
    + """
if not held(ARGV[1], ARGV[2]) then return 0 end
redis.call('ZADD', leases, now + ARGV[3], ARGV[1])
return 1
"""
)
_RELEASE = (
    _NOW
    + """
if redis.call('HGET', tokens, ARGV[1]) == ARGV[2] then
  redis.call('HDEL', tokens, ARGV[1])
  redis.call('ZREM', leases, ARGV[1])
  changed()
end
return 1
"""
)
_HOLDER = (
    _NOW
    + """
local token = redis.call('HGET', tokens, ARGV[1])
return token and held(ARGV[1], token) and token or ''
"""
)
_RAISE = """
local value = tonumber(redis.call('GET', KEYS[4]) or '0')
if value < tonumber(ARGV[1]) then redis.call('SET', KEYS[4], ARGV[1]) end
return 1
"""
_CURSOR = (
    _NOW
    + """
return (redis.call('GET', version) or '0') .. ':' .. redis.call('ZCOUNT', leases, '(' .. now, '+inf')
"""
)
_SNAPSHOT = (
    _NOW
    + """
local live = redis.call('ZRANGEBYSCORE', leases, '(' .. now, '+inf')
return {redis.call('ZRANGEBYLEX', entries, ARGV[1], ARGV[2]), live, (redis.call('GET', version) or '0') .. ':' .. #live}
"""
)
# Leases that ended long ago; their numbers' records say since when.
_TIDY = (
    _NOW
    + """
for _, number in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now - 86400000, 'LIMIT', 0, 1000)) do
  redis.call('ZREM', leases, number)
  redis.call('HDEL', tokens, number)
end
return 1
"""
)


class RedisBackend:
    """See :class:`~entrepot_cluster.directory.backends.interface.Backend`.

    Args:
        name: the cluster's name.
        timeout: seconds to connect, and for each response.
        options: how Redis is reached: arguments of ``redis.Redis``.
    """

    def __init__(self, name: str, timeout: float, **options: Any) -> None:
        self._where = f"Redis at {options.get('host')}:{options.get('port')}"
        self._timeout = timeout
        self._keys = [f"entrepot:{{{name}}}:{key}".encode() for key in _KEYS]
        self._redis = redis.Redis(
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
            **options,
        )

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See the interface."""
        return [entries[0].value if entries else None for entries in self.read_prefixes(keys)]

    def read_prefixes(self, prefixes: Sequence[bytes]) -> list[list[Entry]]:
        """See the interface."""

        def ask() -> list[list[bytes]]:
            with self._redis.pipeline(transaction=False) as pipeline:
                for prefix in prefixes:
                    pipeline.zrangebylex(self._keys[0], *_bounds(prefix))
                members: list[list[bytes]] = pipeline.execute()
                return members

        return [[_entry(member) for member in members] for members in self._guarded(ask)]

    def page(self, prefix: bytes, after: bytes, limit: int) -> list[Entry]:
        """See the interface."""
        low, high = _bounds(prefix)
        if after:
            low = b"[" + successor(after)
        members: list[bytes] = self._guarded(
            lambda: cast("list[bytes]", self._redis.zrangebylex(self._keys[0], low, high, start=0, num=limit))
        )
        return [_entry(member) for member in members]

    def write(self, lease: Lease, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        """See the interface."""
        changes: dict[bytes, bytes | None] = dict.fromkeys(deletes)
        self._change(str(lease.number), lease.token, changes | dict(puts))

    def delete(self, keys: Sequence[bytes]) -> None:
        """See the interface."""
        self._change("", "", dict.fromkeys(keys))

    def swap(self, expected: Mapping[bytes, bytes | None], new: Mapping[bytes, bytes | None]) -> bool:
        """See the interface."""
        arguments: list[Any] = [len(expected)]
        for change in (expected, new):
            if change is new:
                arguments.append(len(new))
            for key, value in change.items():
                arguments += _change(key, value)
        return bool(self._script(_SWAP, *arguments))

    def grant(self, number: int, seconds: float) -> Lease:
        """See the interface."""
        token = secrets.token_hex(8)
        self._script(_GRANT, number, token, round(1000 * seconds))
        return Lease(number, token)

    def keep(self, lease: Lease, seconds: float) -> bool:
        """See the interface."""
        return bool(self._script(_KEEP, lease.number, lease.token, round(1000 * seconds)))

    def release(self, lease: Lease) -> None:
        """See the interface."""
        self._script(_RELEASE, lease.number, lease.token)

    def holder(self, number: int) -> str | None:
        """See the interface."""
        token: bytes = self._script(_HOLDER, number)
        return token.decode() or None

    def next_sequence(self) -> int:
        """See the interface."""
        return int(self._guarded(lambda: self._redis.incr(self._keys[3])))

    def raise_sequence(self, to: int) -> None:
        """See the interface."""
        self._script(_RAISE, to)

    def state(self) -> ServerState:
        """See the interface; the identity changes at every start of Redis, which may have lost its latest writes."""

        def ask() -> tuple[dict[str, Any], Any]:
            with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.info("server")
                pipeline.get(self._keys[3])
                info, position = pipeline.execute()
                return info, position

        info, position = self._guarded(ask)
        return ServerState(str(info.get("run_id")), int(position or 0))

    def now(self) -> float:
        """See the interface."""
        seconds, microseconds = self._guarded(self._redis.time)
        return float(seconds) + float(microseconds) / 1e6

    def snapshot(self) -> Snapshot:
        """See the interface."""
        members, live, cursor = self._script(_SNAPSHOT, *_bounds(RECORDS))
        entries = [_entry(member) for member in members]
        return Snapshot(
            records={
                int.from_bytes(entry.key[1:], "big"): entry.value
                for entry in entries
                if len(entry.key) == 1 + NUMBER_BYTES
            },
            live={int(number) for number in live if number.isdigit()},
            cursor=cursor.decode(),
        )

    def subscribe(self, cursor: str) -> PollingSubscription:
        """See the interface."""
        return PollingSubscription(cursor, lambda: self._script(_CURSOR).decode())

    def tidy(self) -> None:
        """See the interface."""
        self._script(_TIDY)

    def close(self) -> None:
        """See the interface."""
        self._redis.close()

    def _change(self, number: str, token: str, changes: Mapping[bytes, bytes | None]) -> None:
        remaining = iter(changes.items())
        while part := list(islice(remaining, PORTION)):
            instances = any(key.startswith((RECORDS, NUMBERS)) for key, _ in part)
            arguments = [argument for key, value in part for argument in _change(key, value)]
            if not self._script(_WRITE, number, token, int(instances), len(part), *arguments):
                raise LeaseEnded

    def _script(self, script: str, *arguments: Any) -> Any:
        return self._guarded(lambda: self._redis.register_script(script)(keys=self._keys, args=arguments))

    def _guarded(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except (redis.AuthenticationError, NoPermissionError) as error:
            raise AccessDenied(f"{self._where} refuses: {error}") from error
        except redis.TimeoutError as error:
            raise DirectoryUnavailable(
                f"the directory cannot be reached: {self._where} did not answer within {self._timeout:g} s"
            ) from error
        except (redis.RedisError, OSError) as error:
            raise DirectoryUnavailable(f"the directory cannot be used: {self._where}: {error}") from error


def _bounds(prefix: bytes) -> tuple[bytes, bytes]:
    """The bounds of all members whose keys begin with a prefix."""
    return b"[" + prefix, b"(" + successor(prefix)


def _change(key: bytes, value: bytes | None) -> tuple[bytes, bytes, bytes]:
    """A key's bounds, and its member with a value."""
    member = b"" if value is None else key + value + len(key).to_bytes(_LENGTH_BYTES, "big")
    return (*_bounds(key), member)


def _entry(member: bytes) -> Entry:
    """The entry that a member stands for; of a member that is none, the key is the whole, for the caller to refuse."""
    length = int.from_bytes(member[-_LENGTH_BYTES:], "big")
    if length > len(member) - _LENGTH_BYTES:
        return Entry(member, b"")
    return Entry(member[:length], member[length:-_LENGTH_BYTES])
