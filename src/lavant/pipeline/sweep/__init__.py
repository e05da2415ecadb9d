"""Sweeps: one pure function, thousands of scenarios, over a cluster, with results as Parquet.

`scenario` reads what to compute, `calls` computes one scenario, `results` stores the results, `runner` distributes the
work over Spark.
"""
