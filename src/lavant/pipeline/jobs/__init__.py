"""Spark jobs, one a file: a pure `transform(df, config)` and a thin `run(spark, config)`."""
