# Every target sets up what it needs: the locked Python packages in .venv and, where Spark may run, Java.

BIN := .venv/bin

# Tests and demonstrations start hundreds of Python processes; without compiled bytecode each start takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run serve quick test lint bench soak setup java oldest zookeeper rabbitmq kafka hadoop nats chromium polyml prometheus systemd pythons iproute docs kernels classes clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup java ## run the demonstration: the service, then the pipeline on Spark
	@$(BIN)/lavant demo

serve: setup ## run a server that stays up, with its data in ./lavant-data
	@$(BIN)/lavant serve --data lavant-data

quick: setup ## lint and the fast tests: no Spark, no programs of others
	@$(MAKE) --no-print-directory -j 2 lint kernels
	@HYPOTHESIS_PROFILE=quick $(BIN)/pytest -q -n 2 -m "not soak and not external" tests/unit tests/property tests/conformance

test: java zookeeper rabbitmq kafka chromium polyml prometheus systemd ## lint, then all tests but the soak tests
	@$(MAKE) --no-print-directory -j 2 lint kernels
	@$(MAKE) --no-print-directory classes
	@$(MAKE) --no-print-directory docs
	@mkdir -p build; $(MAKE) --no-print-directory oldest >build/oldest.log 2>&1 & oldest=$$!; \
		$(BIN)/pytest -q -n 3 --durations 30; newest=$$?; \
		wait $$oldest; oldest=$$?; echo "On the oldest Spark:"; cat build/oldest.log; exit $$((newest || oldest))

docs: setup ## build the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 UV_PROJECT_ENVIRONMENT=.venv-docs $(BIN)/uv run --quiet --frozen --only-group docs mkdocs build --strict

lint: setup ## style, types and import contracts
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

# The pipeline's tests that depend on the version of Spark, on the oldest supported one; all others run on the newest.
oldest: java
	@if tools/spark-oldest; then .venv-spark-oldest/bin/python -m pytest -q -n 2 -m "oldest and not soak" tests/integration; \
		else [ -z "$$CI" ]; fi

# Compiles what several of the tests' processes would otherwise compile at the same time, each for itself.
kernels: setup
	@$(BIN)/lavant warm-up >&2

# An archive of Spark's classes, so that Java need not load them anew in each of the tests' processes.
classes: java
	@! command -v java >/dev/null || $(BIN)/python -m tests.spark_classes >&2

bench: setup java rabbitmq nats ## run the benchmarks
	@$(BIN)/python -m tests.bench

soak: setup java rabbitmq hadoop pythons iproute ## run the tests marked soak: very many examples, long runs, what needs a quiet machine
	@HYPOTHESIS_PROFILE=soak $(BIN)/pytest -q -m soak || \
		{ status=$$?; [ $$status -ne 5 ] || echo "soak: no test is marked soak" >&2; exit $$status; }

setup: ## make .venv hold what uv.lock says
	@tools/setup

# Without Java the Spark tests are skipped, and say so; continuous integration does not put up with that.
java:
	@tools/java || [ -z "$$CI" ]

# The same holds for the tests that start a ZooKeeper server.
zookeeper:
	@tools/zookeeper || [ -z "$$CI" ]

# And for those that start a RabbitMQ node; it is also measured beside ours in the same run of the benchmarks.
rabbitmq:
	@tools/rabbitmq || [ -z "$$CI" ]

# And for those of topics, which start a Kafka broker.
kafka: setup
	@tools/kafka || [ -z "$$CI" ]

# And for the soak tests of YARN and HDFS.
hadoop:
	@tools/hadoop || [ -z "$$CI" ]

# And for those of web pages in a real browser.
chromium:
	@tools/chromium || [ -z "$$CI" ]

# And for the one that has an exported Petri net checked by a compiler of Standard ML.
polyml:
	@tools/polyml || [ -z "$$CI" ]

# And for the one that has the alerts in deploy/ checked by promtool.
prometheus:
	@tools/prometheus || [ -z "$$CI" ]

# And for the one that has the unit in deploy/ checked by systemd-analyze.
systemd:
	@tools/systemd || [ -z "$$CI" ]

# And for the soak tests on every supported Python.
pythons:
	@tools/pythons || [ -z "$$CI" ]

# And for those of brokers in network namespaces.
iproute:
	@tools/iproute || [ -z "$$CI" ]

nats:
	@tools/nats

clean: ## remove .venv and everything else that can be made again
	rm -rf .venv .venv-docs .venv-spark-oldest .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
