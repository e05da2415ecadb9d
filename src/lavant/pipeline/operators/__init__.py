"""The operators of a batch as Spark tasks: access (AP), match (M) and exit (EP), and what passes between them."""
