# Spark's executors with Lavant, for Kubernetes or as workers of a standalone cluster, and drivers beside them:
#   docker build -f deploy/spark.Dockerfile -t lavant-spark:0.1.0 .
# The Spark of the base image must be that of uv.lock.

FROM python:3.12-slim AS build
COPY --from=ghcr.io/astral-sh/uv:0.13.7 /uv /usr/local/bin/uv
WORKDIR /build
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY src ./src
# A Python of its own, which runs in any image: that of the base image may be another version.
ENV UV_PYTHON_INSTALL_DIR=/opt/python UV_PYTHON_PREFERENCE=only-managed UV_PROJECT_ENVIRONMENT=/opt/lavant
RUN uv sync --locked --no-dev --no-editable --compile-bytecode --python 3.12 --extra spark --extra hdfs --extra s3 --extra zookeeper
# The base image has them.
RUN rm -rf /opt/lavant/lib/python3.12/site-packages/pyspark/jars

FROM apache/spark:4.3.0-scala2.13-java17-ubuntu
USER root
COPY --from=build /opt/python /opt/python
COPY --from=build /opt/lavant /opt/lavant
# Kernels are compiled for a processor that every machine has; see deploy/Dockerfile.
ARG CPU_NAME=generic
ARG CPU_FEATURES=
ENV PATH=/opt/lavant/bin:$PATH \
    PYSPARK_PYTHON=/opt/lavant/bin/python \
    PYTHONUNBUFFERED=1 \
    LAVANT_CACHE_DIR=/opt/lavant/cache \
    NUMBA_CPU_NAME=$CPU_NAME \
    NUMBA_CPU_FEATURES=$CPU_FEATURES
RUN lavant warm-up && chmod -R a+rX /opt/lavant/cache
USER spark
