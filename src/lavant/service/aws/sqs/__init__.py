"""The SQS protocol in front of Lavant's queues: existing clients of Amazon SQS work with an endpoint URL.

app ──► http ──► signature ──► protocols (JSON, query) ──► actions ──► the hub's commands
 ▲                                     │       ▲              │
 └─────────────────────────────────────┘       └──── results ─┘
"""
