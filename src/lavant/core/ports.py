"""Where a server listens, and its clients look for it, unless told otherwise."""

from __future__ import annotations

QUEUES_PORT = 7324
QUEUES_URL = f"lavant://127.0.0.1:{QUEUES_PORT}"
