"""Queues in virtual time: the real server and journal on a simulated host, and clients that record what they see.

The scenario `queues` combines them, with faults.
"""
