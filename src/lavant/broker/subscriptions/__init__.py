"""Who wants what, and into which queue it goes."""
