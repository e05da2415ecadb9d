"""The world of Spark: access, match and exit on Structured Streaming. The only package that imports pyspark."""
