"""Routing between brokers: what neighbours tell each other, what waits for them, and where publications go.

Brokers form a tree. Advertisements are flooded; a subscription follows the reverse paths of the advertisements that it
intersects; a publication follows subscriptions. `state` is durable and part of the broker's journal, `router` derives
from it what each neighbour should know, and `machine` talks to the neighbours.

After A. K. Y. Cheung, Dynamic Load Balancing in Distributed Content-based Publish/Subscribe, sections 2.1 and 3.2.
"""
