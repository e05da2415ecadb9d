"""The SQS protocol for Lavant's queues: clients of Amazon SQS work with another endpoint URL.

app ──► http ──► signature ──► protocols (JSON, query) ──► actions ──► commands of the broker
 ▲                                     │       ▲              │
 └─────────────────────────────────────┘       └──── results ─┘
"""
