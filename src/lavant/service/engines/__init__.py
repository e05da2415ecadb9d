"""Engines: what finds out which queues a publication goes to (AP, M, EP)."""
