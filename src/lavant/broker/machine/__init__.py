"""A broker between its connections and its disk: requests in, records for the journal and replies out."""
