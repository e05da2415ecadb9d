"""The Spark engine's process: matches offset ranges of the service's logs on Spark, and reports the match results.

It keeps no offsets and no checkpoint. The service's journal records what is delivered, in the same record that
delivers; a stream's own checkpoint would be a second source of truth. So each round is one Spark job over offset ranges
of all logs, like a micro-batch of `lavant.pipeline.stream.driver`, without a query around it.
"""
