"""Commands that publish, subscribe and work with queues."""
