"""What bounds a server's connections, and what its clients may ask over HTTP."""

from __future__ import annotations

import msgspec

from lavant.core.frames import FRAME_BYTES_MAX

QUEUES_SHOWN_MAX = 1000
"""Queues with series of their own at `/metrics`, and namespaces with sums, if `--metrics-queues-max` does not say
otherwise."""


class ServiceLimits(msgspec.Struct, frozen=True):
    """The defaults are those of `lavant serve`."""

    connections_max: int = 10_000
    """Of all protocols; fewer if the system does not let the process open so many files. More are closed at once."""
    unauthenticated_max: int = 1000
    """Connections that have not shown a key or signed anything yet, at most half of all; then the oldest is closed."""
    files_reserved: int = 128
    """Descriptors that are kept for the journal, its snapshots and compaction, for logs and the pipes of processes.
    Those of webhooks and of the metrics' own port are kept beside these."""
    metrics_connections_max: int = 64
    """On the metrics' own port."""
    greeting_s_max: float = 10.0
    """How long a new connection may take to say which protocol it speaks, and who it is."""
    hello_bytes_max: int = 4096
    """Of the first frame of a connection, which shows the key. Nothing else is read before it was accepted."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """Of all other frames."""
    outstanding_max: int = 1024
    """Requests of a connection without an answer, receives that wait for a message not counted; then its requests stay
    unread until some are answered."""
    staged_bytes_max: int = 64 << 20
    """What waits for the disk; then nobody's requests are read."""
    staged_bytes_fair: int = 8 << 20
    """What waits for the disk; then the requests of namespaces that have staged more than half of it stay unread."""
    unread_bytes_high: int = 1 << 20
    """Answers that a client has not read; then its requests stay unread until it has read some."""
    unread_bytes_max: int = 64 << 20
    """Then it is disconnected."""
    unread_bytes_total_max: int = 512 << 20
    """Of all clients that have more than `unread_bytes_high`; then the one with the most is disconnected."""
    unread_s_max: float = 60.0
    """A client that reads nothing for so long, though there is something to read, is disconnected."""
    publications_waiting_max: int = 50_000
    """Publications that wait to be matched; then more are refused until there are fewer."""
    publications_waiting_bytes_max: int = 64 << 20
    head_s_max: float = 15.0
    """How long the head of an HTTP request may take to arrive."""
    body_bytes_max: int = 16 << 20
    """Of a request to the HTTP interface; SQS has its own."""
    body_s_max: float = 30.0
    """How long the body of an HTTP request may take to arrive, of SQS as well."""
    unverified_bytes_max: int = 64 << 20
    """Of all bodies of SQS requests that are arriving and whose signature, which covers them, cannot be checked yet."""
    discarded_bytes_max: int = 256 << 10
    """Of a body that still arrives when its request was answered; then the connection is closed."""
    entries_max: int = 1000
    """Subscriptions, receipts, … of one HTTP request; publications have their own limit."""
    streams_max: int = 2000
    """Server-sent events and WebSockets at the same time."""
    stream_lease_ms: int = 20_000
    """Of a subscription that ends with its stream; a server that was killed leaves it behind for so long."""
    prefetch_max: int = 10_000
    """Messages that a stream may have unacknowledged."""
    heartbeat_s: float = 15.0
    """After so long without an event, a stream is written to nevertheless, so that both sides notice when it broke."""
    settle_s: float = 2.0
    """How long an event was with the client's machine, on a connection that lives, before it counts as received."""
    webhook_requests_max: int = 8
    """To one webhook at the same time."""
    webhook_requests_total_max: int = 256
    webhook_idle_max: int = 64
    """Connections to all webhooks that are kept for the next request; then the oldest is closed."""
    webhook_answer_bytes_max: int = 64 << 10
    """Of a webhook's answer, of which nothing but the head is of interest."""
    webhook_backoff_s: float = 1.0
    """Before the second attempt; twice as long before each that follows."""
    webhook_backoff_s_max: float = 600.0
    webhook_retry_after_s_max: float = 3600.0
    """A webhook that asks for more time gets this much at most."""
    stop_s_max: float = 5.0
    """How long a server that is stopping waits for its clients to take their answers."""


LIMITS = ServiceLimits()
