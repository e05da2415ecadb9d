"""Covering: which filters match everything that another one matches, and the poset of subscriptions ordered by it."""
