"""The SQS protocol in front of Lavant's queues: existing clients of Amazon SQS work with an endpoint URL.

app ──► http ──► signature ──► protocols (JSON, query) ──► actions ──► the hub's commands
 ▲                                     │       ▲              │
 └─────────────────────────────────────┘       └──── results ─┘
"""

from lavant.service.sqs.app import SqsApp
from lavant.service.sqs.settings import SqsSettings

__all__ = ["SqsApp", "SqsSettings"]
