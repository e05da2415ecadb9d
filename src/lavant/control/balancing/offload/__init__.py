"""The offload algorithms of the thesis: which subscriptions move from one broker to another (Section 4.2)."""
