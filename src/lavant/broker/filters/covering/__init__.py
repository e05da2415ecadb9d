"""Covering: which filters match whatever another one matches, and the poset of subscriptions ordered by it."""
