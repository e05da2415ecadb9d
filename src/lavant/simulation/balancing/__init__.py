"""The experiments of the balancing thesis: a model of heterogeneous brokers that the real balancers control."""
