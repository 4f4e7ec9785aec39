"""The cheapest cut of a directed graph with capacities, after Dinic (1970): shortest augmenting paths, in phases."""

from __future__ import annotations

from collections import deque

INFINITE = 1 << 60
"""the capacity of an edge that no cut takes"""


class Network:
    """A graph whose nodes are numbered as they are made; 0 is the source, 1 the sink."""

    def __init__(self) -> None:
        self.edges: list[list[int]] = [[], []]
        """for each node, the numbers of the edges that leave it; the reverse of edge e is e ^ 1"""
        self.to: list[int] = []
        self.room: list[int] = []

    def node(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def edge(self, start: int, end: int, capacity: int) -> None:
        if capacity > 0:
            for a, b, room in ((start, end, capacity), (end, start, 0)):
                self.edges[a].append(len(self.to))
                self.to.append(b)
                self.room.append(room)

    def cut(self) -> tuple[int, set[int]]:
        """The cost of the cheapest cut, and the nodes on its sink's side; of equal cuts, that with the fewest nodes
        there."""
        flow = 0
        while (levels := self._levels())[1] >= 0:
            following = [0] * len(self.edges)
            while pushed := self._push(levels, following):
                flow += pushed
        return flow, self._behind()

    def _levels(self) -> list[int]:
        """How many edges with room each node is from the source; -1 where no path leads."""
        levels = [-1] * len(self.edges)
        levels[0] = 0
        waiting = deque([0])
        while waiting:
            at = waiting.popleft()
            for e in self.edges[at]:
                if self.room[e] and levels[self.to[e]] < 0:
                    levels[self.to[e]] = levels[at] + 1
                    waiting.append(self.to[e])
        return levels

    def _push(self, levels: list[int], following: list[int]) -> int:
        """One more path from the source to the sink: how much flows along it."""
        path: list[int] = []
        at = 0
        while at != 1:
            while following[at] < len(self.edges[at]):
                e = self.edges[at][following[at]]
                if self.room[e] and levels[self.to[e]] == levels[at] + 1:
                    break
                following[at] += 1
            else:
                if not path:
                    return 0
                at = self.to[path.pop() ^ 1]
                following[at] += 1
                continue
            path.append(e)
            at = self.to[e]
        pushed = min(self.room[e] for e in path)
        for e in path:
            self.room[e] -= pushed
            self.room[e ^ 1] += pushed
        return pushed

    def _behind(self) -> set[int]:
        """The nodes from which the sink can still be reached."""
        found, waiting = {1}, [1]
        while waiting:
            for e in self.edges[waiting.pop()]:
                if self.room[e ^ 1] and self.to[e] not in found:
                    found.add(self.to[e])
                    waiting.append(self.to[e])
        return found
