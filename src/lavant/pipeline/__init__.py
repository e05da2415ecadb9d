"""The world of Spark: access, match and exit on Structured Streaming. The only package that imports pyspark."""

import pyspark

from lavant.pipeline.internals.versions import check_pyspark

check_pyspark(pyspark.__version__)
