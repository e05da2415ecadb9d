"""Delivery orders of queues: out-of-order, and in-order by message group."""
