"""Routes: tables with digests, the derivation of what each neighbour should know, and who is behind each link."""
