"""Who is next: files wait by link and priority; links take turns."""

from __future__ import annotations

from collections.abc import Callable

Link = tuple[str, str, str]  # VO, source storage, destination storage


class Queue:
    """The files that wait. Of a link only those of its highest waiting priority are served, as FTS3 does."""

    def __init__(self) -> None:
        self._links: dict[Link, dict[int, dict[int, None]]] = {}
        self._places: dict[int, tuple[Link, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, link: Link, priority: int, file_id: int) -> None:
        """Let a file wait behind those of its link and priority."""
        self.drop(file_id)
        self._links.setdefault(link, {}).setdefault(priority, {})[file_id] = None
        self._places[file_id] = (link, priority)

    def drop(self, file_id: int) -> None:
        """Let a file wait no longer."""
        link, priority = self._places.pop(file_id, (None, 0))
        if link is None:
            return
        priorities = self._links[link]
        del priorities[priority][file_id]
        if not priorities[priority]:
            del priorities[priority]
        if not priorities:
            del self._links[link]

    def take(self, has_room: Callable[[Link], bool]) -> tuple[Link, int] | None:
        """Take the next file of the first link that has room; that link goes to the end of the line."""
        link = next((candidate for candidate in self._links if has_room(candidate)), None)
        if link is None:
            return None
        priorities = self._links.pop(link)
        self._links[link] = priorities
        file_id = next(iter(priorities[max(priorities)]))
        self.drop(file_id)
        return link, file_id
