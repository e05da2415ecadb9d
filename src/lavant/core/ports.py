"""The default port of a server, and the default address for its clients."""

from __future__ import annotations

QUEUES_PORT = 7324
QUEUES_URL = f"lavant://127.0.0.1:{QUEUES_PORT}"
