"""The pipeline for a running service: takes stretches of its logs, matches them on Spark, and reports who wants them.

It keeps no offsets and no checkpoint. The service's journal says what is delivered, in the very record that delivers; a
stream's own checkpoint would be a second truth beside it. So each round is one Spark job over the stretches of all
logs, as a micro-batch of `lavant.pipeline.stream.driver` is, without a query around it.
"""
