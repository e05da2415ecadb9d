"""A connection to a server: where it is, how bytes travel, what is asked again when it was gone for a while."""
