"""A table of bounded size that drops the least recently used entry."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from tessera.runtime.locks import Locked

K = TypeVar("K")
V = TypeVar("V")


class Recent(Locked, Generic[K, V]):
    """At most `limit` values, safe for threads. Who has got a value keeps it, whatever the table does."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        with self.lock:
            if key in self._items:
                self._items.move_to_end(key)
            return self._items.get(key)

    def put(self, key: K, value: V) -> None:
        gone: list[V] = []  # goes when the lock has been given back: destructors may come here again
        with self.lock:
            self._items[key] = value
            self._items.move_to_end(key)
            while len(self._items) > self.limit:
                gone.append(self._items.popitem(last=False)[1])

    def clear(self) -> None:
        with self.lock:
            gone, self._items = self._items, OrderedDict()
        del gone

    def __len__(self) -> int:
        return len(self._items)
