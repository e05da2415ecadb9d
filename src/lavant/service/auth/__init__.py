"""Access control for every protocol: keys, authorisation, namespaces, quotas, rate limits, audit log."""
