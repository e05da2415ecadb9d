"""Consumers inside the server: prefetch windows for streams, and webhooks."""
