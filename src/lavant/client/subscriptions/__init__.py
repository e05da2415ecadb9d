"""Subscriptions on a server: operations for both clients, prefetching, leases, and notifications."""
