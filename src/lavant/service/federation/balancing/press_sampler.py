"""PRESS over live publications: one bit for each subscription and publication, while a session samples.

A. Cheung, "Dynamic Load Balancing in Distributed Content-based Publish/Subscribe", Section 4.1.1. The fan-out of a
batch says which queues get which publications, and a subscription that can move owns its queue: nothing is matched
again. Whether a peer gets a publication anyway is found at the end, by matching all samples with the peer's filters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.matching.plain.matcher import PlainMatcher
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.subscriptions.parsing import PLAIN, ParsedPublication
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.control.balancing import PressSample
from lavant.control.balancing.press import SAMPLES_MAX, pack
from lavant.core.errors import LavantError
from lavant.core.publications.row_batch import RowBatch

SEPARATOR = "\n"
"""Between namespace and filter in a covering set; namespaces do not contain it."""


class PressSampler:
    """Takes one sample. `queues` are the serials of the queues of `subscriptions`, in the same order."""

    def __init__(
        self,
        session: str,
        subscriptions: Sequence[str],
        queues: Sequence[int],
        covering: Mapping[str, Sequence[str]],
        publications: int,
    ) -> None:
        self.session = session
        self.subscriptions = subscriptions
        self._covering = covering
        self._wanted = min(publications, SAMPLES_MAX)
        serials = np.array(queues, np.int64)
        self._rows = np.argsort(serials, kind="stable")
        self._serials = serials[self._rows]
        self._bits = np.zeros((len(subscriptions), self._wanted), np.bool_)
        self._seen: list[tuple[str, ParsedPublication]] = []

    @property
    def is_complete(self) -> bool:
        return len(self._seen) >= self._wanted

    def see(self, namespace: str, publications: Sequence[ParsedPublication], part: FanOutBatch) -> None:
        """Take as many publications of a batch as are wanted yet."""
        first = len(self._seen)
        taken = publications[: self._wanted - first]
        if not taken:
            return
        self._seen.extend((namespace, each) for each in taken)
        if not len(self._serials):
            return
        queues = np.frombuffer(part.queues, INTEGERS).astype(np.int64)
        ends = np.frombuffer(part.ends, INTEGERS).astype(np.int64)
        places = np.frombuffer(part.places, INTEGERS).astype(np.int64)
        found = np.minimum(np.searchsorted(self._serials, queues), len(self._serials) - 1)
        is_known = self._serials[found] == queues
        rows = np.where(is_known, self._rows[found], -1)
        row_of = np.repeat(rows, np.diff(ends, prepend=0))
        is_taken = (row_of >= 0) & (places < len(taken))
        self._bits[row_of[is_taken], first + places[is_taken]] = True

    def sample(self, input_rate_per_s: float) -> PressSample:
        """The sample as far as it came. It matches covering sets, so call it in a thread."""
        count = len(self._seen)
        sizes = [len(publication.body) for _, publication in self._seen]
        return PressSample(
            subscriptions=self.subscriptions,
            vectors=pack(self._bits[:, :count]),
            peers=dict(zip(self._covering, pack(self._covered()), strict=True)),
            publications=count,
            input_rate_per_s=input_rate_per_s,
            publication_bytes=sum(sizes) / count if count else 0.0,
        )

    def _covered(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """By peer and publication, whether the peer gets it anyway."""
        covered = np.zeros((len(self._covering), len(self._seen)), np.bool_)
        columns: dict[str, list[int]] = defaultdict(list)
        for column, (namespace, publication) in enumerate(self._seen):
            if publication.scheme == PLAIN:  # encrypted filters cannot be compared
                columns[namespace].append(column)
        for peer, texts in enumerate(self._covering.values()):
            by_namespace: dict[str, list[str]] = defaultdict(list)
            for text in texts:
                namespace, _, filter = text.partition(SEPARATOR)
                by_namespace[namespace].append(filter)
            for namespace, filters in by_namespace.items():
                of_namespace = columns.get(namespace, [])
                if of_namespace:
                    batch = RowBatch([self._seen[column][1].content for column in of_namespace])
                    covered[peer, of_namespace] = _any_matches(filters, batch)
        return covered


def covering_text(namespace: str, filter: str) -> str:
    """An element of a covering set, as brokers send it to each other."""
    return f"{namespace}{SEPARATOR}{filter}"


def _any_matches(filters: list[str], batch: RowBatch) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """By publication. Filters that cannot be read cover nothing, which overestimates the input of the peer."""
    matcher = PlainMatcher()
    try:
        matcher.add(range(len(filters)), encode_filters(filters))
        return np.asarray(np.diff(matcher.match(batch).offsets) > 0)
    except LavantError:
        return np.zeros(len(batch), np.bool_)
