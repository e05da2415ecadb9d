"""PRESS: which publications each subscription matched, as bit vectors (Section 4.1.1).

Bit k of a subscription's vector is set if it matched the k-th sampled publication. A peer's vector is the OR over its
covering subscription set (4.3). With the input rate i_r and N samples,

    rate of a subscription          i_r · bits(vector) / N                           (4.1)
    extra input at an accepting one i_r · bits(vector AND NOT peer's vector) / N     (4.4, 4.5)

and moving a subscription ORs its vector into the peer's (4.6). Nothing is sampled twice. 10,000 subscriptions and 50
samples take 80 kB.

Subscriptions with equal vectors cannot be told apart by the sample, so the algorithms treat them as one candidate with
several subscribers, whether or not their filters are the same text. A vector that is part of another one counts as
covered by it: covering as far as the sample shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from lavant.core.errors import InvalidValue

Words = npt.NDArray[np.uint64]

SAMPLES_MAX = 10_000


class PressSample(msgspec.Struct, frozen=True, kw_only=True):
    """Bit vectors of local subscriptions (one row each) and of each peer's covering set."""

    subscriptions: Sequence[str]
    vectors: Words
    peers: Mapping[str, Words]
    publications: int
    """N: samples taken."""
    input_rate_per_s: float
    """Arrivals per second while sampling."""
    publication_bytes: float = 0.0
    """Mean size of the sampled publications."""

    def __post_init__(self) -> None:
        for name in ("input_rate_per_s", "publication_bytes"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise InvalidValue(f"{name} of a sample must be a number from 0 on, got {value}")

    @classmethod
    def of(
        cls,
        *,
        subscriptions: Sequence[str],
        matches: Iterable[tuple[int, Sequence[int]]],
        peers: Mapping[str, Sequence[int]],
        publications: int,
        input_rate_per_s: float,
        publication_bytes: float = 0.0,
    ) -> PressSample:
        """Builds the vectors from (publication, rows that it matched) and from the publications that each peer gets."""
        if not 0 <= publications <= SAMPLES_MAX:
            raise InvalidValue(f"a sample has 0 to {SAMPLES_MAX} publications, got {publications}")
        bits = np.zeros((len(subscriptions), publications), np.bool_)
        for publication, rows in matches:
            bits[np.asarray(rows, np.intp), publication] = True
        of_peers = np.zeros((len(peers), publications), np.bool_)
        for row, received in enumerate(peers.values()):
            of_peers[row, np.asarray(received, np.intp)] = True
        return cls(
            subscriptions=subscriptions,
            vectors=pack(bits),
            peers=dict(zip(peers, pack(of_peers), strict=True)),
            publications=publications,
            input_rate_per_s=input_rate_per_s,
            publication_bytes=publication_bytes,
        )

    def rate_per_s(self, vector: Words) -> npt.NDArray[np.float64]:
        """(4.1) for one vector or for many; 0 if nothing was sampled."""
        if self.publications == 0:
            return np.zeros(vector.shape[:-1])
        return self.input_rate_per_s * bit_count(vector) / self.publications


def pack(bits: npt.NDArray[np.bool_]) -> Words:
    """Rows of booleans as rows of 64-bit words, at least one a row.

    >>> pack(np.array([[True, False, True]])).tolist()
    [[5]]
    """
    words = max(1, -(-bits.shape[1] // 64))
    padded = np.zeros((bits.shape[0], words * 64), np.bool_)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def bit_count(vectors: Words) -> npt.NDArray[np.int64]:
    """Bits set in each vector (the last axis)."""
    return np.asarray(np.bitwise_count(vectors).sum(axis=-1, dtype=np.int64))


class Candidates:
    """Subscriptions grouped by vector: the candidates of an offload algorithm, largest vector first.

    `members[g]` are the rows of the sample that group g still holds; `take` removes some of them. `bits_left` counts,
    for every publication, the groups that match it: a bit that only one group holds is input that leaves with it.
    """

    def __init__(self, sample: PressSample) -> None:
        self.sample = sample
        if len(sample.subscriptions):
            unique, group_of = np.unique(sample.vectors, axis=0, return_inverse=True)
        else:
            unique, group_of = np.zeros((0, max(1, sample.vectors.shape[-1])), np.uint64), np.zeros(0, np.intp)
        order = np.argsort(-bit_count(unique), kind="stable")
        self.vectors: Words = np.ascontiguousarray(unique[order])
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        rows = np.argsort(place[group_of.reshape(-1)], kind="stable")
        self.sizes = np.bincount(place[group_of.reshape(-1)], minlength=len(order)).astype(np.int64)
        self.members = [part.tolist() for part in np.split(rows, np.cumsum(self.sizes)[:-1])] if len(order) else []
        self.rates_per_s = sample.rate_per_s(self.vectors)
        self._unpacked = np.unpackbits(self.vectors.view(np.uint8), axis=1, bitorder="little").astype(np.int32)
        self.bits_left = self._unpacked.sum(axis=0)
        self._covers: npt.NDArray[np.int64] | None = None
        """By group, how many others cover it; counted when somebody asks."""

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, group: int, count: int) -> list[str]:
        """Removes `count` subscribers from a group and returns their names."""
        rows = self.members[group][:count]
        del self.members[group][:count]
        self.sizes[group] -= len(rows)
        if self.sizes[group] == 0 and rows:
            self.bits_left -= self._unpacked[group]
            if self._covers is not None:
                self._covers -= self._covered_by(group)
        return [self.sample.subscriptions[row] for row in rows]

    def reducible_per_s(self) -> npt.NDArray[np.float64]:
        """By group: the input that ends if all of its subscribers leave."""
        if self.sample.publications == 0:
            return np.zeros(len(self))
        alone = (self._unpacked * (self.bits_left == 1)).sum(axis=1)
        return np.asarray(self.sample.input_rate_per_s * np.where(self.sizes > 0, alone, 0) / self.sample.publications)

    def extra_per_s(self, peer: Words) -> npt.NDArray[np.float64]:
        """By group: the input that one of its subscribers adds at a peer (4.5)."""
        return self.sample.rate_per_s(self.vectors & ~peer)

    def covering(self) -> npt.NDArray[np.bool_]:
        """The groups that no other remaining group covers: this broker's covering subscription set."""
        if self._covers is None:
            self._covers = np.zeros(len(self), np.int64)
            for group in np.flatnonzero(self.sizes > 0).tolist():
                self._covers += self._covered_by(group)
        return np.asarray((self.sizes > 0) & (self._covers == 0))

    def _covered_by(self, group: int) -> npt.NDArray[np.bool_]:
        inside = ((self.vectors & ~self.vectors[group]) == 0).all(axis=1)
        inside[group] = False
        return np.asarray(inside)
