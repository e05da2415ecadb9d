"""Publications: their attributes, one by one as values, and many as columns."""
