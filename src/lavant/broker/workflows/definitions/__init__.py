"""Job types: their definitions, how these are read and validated, and the graph of tasks made from them."""
