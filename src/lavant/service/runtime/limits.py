"""Limits of a server's connections and of requests over HTTP."""

from __future__ import annotations

import msgspec

from lavant.core.frames import FRAME_BYTES_MAX

QUEUES_SHOWN_MAX = 1000
"""Default of `--metrics-queues-max`: queues with series of their own at `/metrics`, and namespaces with sums."""


class ServiceLimits(msgspec.Struct, frozen=True):
    """The defaults are those of `lavant serve`."""

    connections_max: int = 10_000
    """Of all protocols; fewer if the system limits open files. Further ones are closed at once."""
    unauthenticated_max: int = 1000
    """Connections without an authenticated request, at most half of all; then the oldest is closed."""
    files_reserved: int = 128
    """Descriptors reserved for the journal, its snapshots and compaction, for logs and the pipes of processes.
    Those of webhooks and of the metrics port are reserved in addition."""
    metrics_connections_max: int = 64
    """On the metrics port."""
    greeting_s_max: float = 10.0
    """Time for a new connection to send its first bytes and, in the native protocol, its greeting."""
    hello_bytes_max: int = 4096
    """Of the first frame of a connection, which holds the key. Nothing else is read before it is accepted."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """Of all other frames."""
    outstanding_max: int = 1024
    """Unanswered requests of a connection, without long polls; then the server does not read from it until some are
    answered."""
    staged_bytes_max: int = 64 << 20
    """Records that wait for the disk; then no requests are read."""
    staged_bytes_fair: int = 8 << 20
    """Records that wait for the disk; then namespaces that staged more than half of it are not read from."""
    unread_bytes_high: int = 1 << 20
    """Answers that a client has not read; then it is not read from until it has read some."""
    unread_bytes_max: int = 64 << 20
    """Then it is disconnected."""
    unread_bytes_total_max: int = 512 << 20
    """Of all clients that have more than `unread_bytes_high`; then the one with the most is disconnected."""
    unread_s_max: float = 60.0
    """A client that reads nothing for so long, while answers wait, is disconnected."""
    publications_waiting_max: int = 50_000
    """Publications that wait to be matched; then further ones are refused until there are fewer."""
    publications_waiting_bytes_max: int = 64 << 20
    head_s_max: float = 15.0
    """Time for the head of an HTTP request to arrive."""
    body_bytes_max: int = 16 << 20
    """Of a request to the HTTP interface; SQS has its own."""
    body_s_max: float = 30.0
    """Time for the body of an HTTP request to arrive, of SQS as well."""
    unverified_bytes_max: int = 64 << 20
    """Of all arriving bodies of SQS requests: the signature covers the body, so it cannot be checked yet."""
    discarded_bytes_max: int = 256 << 10
    """Of a body that still arrives after its request was answered; then the connection is closed."""
    entries_max: int = 1000
    """Subscriptions, receipts, … of one HTTP request; publications have their own limit."""
    streams_max: int = 2000
    """Streams of server-sent events and WebSockets at the same time."""
    stream_lease_ms: int = 20_000
    """Of a subscription that ends with its stream; after a crash of the server it lasts this long."""
    prefetch_max: int = 10_000
    """Messages that a stream may have unacknowledged."""
    heartbeat_s: float = 15.0
    """After so long without an event a stream sends a heartbeat, so that both ends notice a broken connection."""
    settle_s: float = 2.0
    """An event counts as received when it was with the client's machine this long and the connection still lives."""
    webhook_requests_max: int = 8
    """To one webhook at the same time."""
    webhook_requests_total_max: int = 256
    webhook_idle_max: int = 64
    """Idle connections kept for all webhooks; then the oldest is closed."""
    webhook_answer_bytes_max: int = 64 << 10
    """Of a webhook's answer, of which only the head is used."""
    webhook_backoff_s: float = 1.0
    """Before the second attempt; doubles with each further one."""
    webhook_backoff_s_max: float = 600.0
    webhook_retry_after_s_max: float = 3600.0
    """The most that a webhook can ask for with `Retry-After`."""
    link_waiting_bytes_max: int = 256 << 20
    """Publications that wait for a neighbouring broker; then those that must cross the link are refused."""
    link_waiting_s_max: float = 86_400.0
    """Age of the oldest of them; likewise."""
    link_window_bytes: int = 4 << 20
    """Publications sent to a neighbour that it has not confirmed; then the next ones wait."""
    link_probe_s: float = 5.0
    """Interval of the probes of a link."""
    link_silent_s_max: float = 15.0
    """A link whose probe is not answered for so long is closed, and opened again."""
    stop_s_max: float = 5.0
    """Time for clients to read their answers when the server stops."""


LIMITS = ServiceLimits()
