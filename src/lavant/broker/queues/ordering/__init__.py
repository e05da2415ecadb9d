"""The order in which a queue hands out its messages: out-of-order, and in-order by message group."""
