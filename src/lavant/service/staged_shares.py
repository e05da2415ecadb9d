"""Whose records wait for the disk: namespaces that stage faster than it writes are held back before all are. Pure."""

from __future__ import annotations

from collections import defaultdict


class StagedShares:
    """Of at most `bytes_max`, no namespace may have staged more than half since the disk was last behind by so much.

    >>> shares = StagedShares(bytes_max=100)
    >>> for namespace, size_bytes in (("noisy", 90), ("quiet", 20)):
    ...     shares.stage(size_bytes)
    ...     shares.attribute(namespace)
    >>> shares.to_hold(staged_bytes=110), shares.to_hold(staged_bytes=110)
    (['noisy'], [])
    >>> shares.to_release(staged_bytes=60), shares.to_release(staged_bytes=50), shares.to_release(staged_bytes=0)
    ([], ['noisy'], [])
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._unattributed = 0
        self._shares: dict[str, int] = defaultdict(int)
        self._held: list[str] = []

    def stage(self, size_bytes: int) -> None:
        """A record; whose it is, is said by the next `attribute`."""
        self._unattributed += size_bytes

    def attribute(self, namespace: str) -> None:
        if self._unattributed:
            self._shares[namespace] += self._unattributed
            self._unattributed = 0

    def to_hold(self, staged_bytes: int) -> list[str]:
        """Those that staged too much, if so much waits for the disk."""
        if staged_bytes <= self._bytes_max:
            return []
        found = [name for name, size in self._shares.items() if size > self._bytes_max // 2 and name not in self._held]
        self._held += found
        return found

    def to_release(self, staged_bytes: int) -> list[str]:
        """All that are held, when the disk has caught up with half of it; what was staged until then is forgotten."""
        if staged_bytes > self._bytes_max // 2:
            return []
        self._shares.clear()
        released, self._held = self._held, []
        return released
