"""Every use of Spark beyond its public interface, and the versions it is known to work with.

Each module lists its private calls. No other module of the pipeline makes any: a test looks for private attributes,
modules that PySpark does not document, and Py4J.
"""
