"""One door for every protocol: keys, authorisation, namespaces and rate limits."""
