"""The Spark world: access, match and exit on Structured Streaming. The only package that imports pyspark."""

import pyspark

from lavant.pipeline.internals.versions import PYSPARK

PYSPARK.check(pyspark.__version__)
