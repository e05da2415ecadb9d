"""The Spark world: access, match and exit on Structured Streaming. The only package that imports pyspark."""

from lavant.core.packages import named_extras

with named_extras():
    import pyspark

from lavant.pipeline.internals.versions import PYSPARK

PYSPARK.check(pyspark.__version__)
