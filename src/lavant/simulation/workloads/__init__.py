"""Publications and subscriptions from a seed: the same seed gives the same workload everywhere."""
