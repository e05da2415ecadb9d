"""Balancing live: measures the broker's load, takes samples, talks to other brokers, and moves subscriptions."""
