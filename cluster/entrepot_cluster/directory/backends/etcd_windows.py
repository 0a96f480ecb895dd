"""Windows of keys for listings in etcd, whose cost grows with the keys in the range and not with the limit.

etcd 3.4 visits all keys of a range, even if it returns only the first ones. So a listing asks for narrow ranges, one
after another, and adapts their width to the number of keys that the last one had. Object IDs and the references of
sessions, which follow the kind in a key, are spread evenly.
"""

from __future__ import annotations

from entrepot_cluster.directory.codec import successor

_BYTES = 8  # of a key after the prefix, as a number: the position
_END = 1 << (8 * _BYTES)
_FIRST_WIDTH = _END >> 12  # 2,400 of 10,000,000 keys
_GROWTH = 16  # at most, from one window to the next


class Windows:
    """Ranges that together cover all keys with a prefix that follow another key, in order.

    Args:
        prefix: what all keys begin with.
        after: the key to begin after; empty: from the first.
    """

    def __init__(self, prefix: bytes, after: bytes) -> None:
        self._prefix = prefix
        self._last = successor(prefix)
        self._width = _FIRST_WIDTH
        self._position = self._position_of(after) if after else 0
        self.begin = after + b"\x00" if after else prefix
        self.end = self._end()

    @property
    def exhausted(self) -> bool:
        """Whether all keys were covered."""
        return self.begin == self._last

    def advance(self, keys: int, wanted: int) -> None:
        """Go on to the next window.

        Args:
            keys: how many keys this one had.
            wanted: how many the next one should have.
        """
        self.begin = self.end
        if self.exhausted:
            return
        self._position += self._width
        factor = _GROWTH if keys == 0 else min(_GROWTH, wanted / keys)
        self._width = max(1, int(self._width * factor))
        self.end = self._end()

    def _position_of(self, key: bytes) -> int:
        part = key[len(self._prefix) : len(self._prefix) + _BYTES]
        return int.from_bytes(part.ljust(_BYTES, b"\x00"), "big")

    def _end(self) -> bytes:
        end = self._position + self._width
        return self._last if end >= _END else self._prefix + end.to_bytes(_BYTES, "big")
