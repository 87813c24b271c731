# Targets for developers. `make demo` and `make test` install their requirements.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Run pytest. PENSTOCK_RETRY=3, as in CI, runs at most three failed tests again.
PYTEST := $(BIN)/python -m tools.retry
SERVERS := kafka postgres mariadb rabbitmq redis cassandra opensearch mongodb sqs kinesis registry iceberg_rest lakespark sql
SPREAD := -n logical --maxprocesses 8 --dist worksteal
# Tests with real processes wait much of their time, so three run at once, also on two cores. Each xdist worker has one cluster for all its tests.
WITH_PROCESSES := -n 3 --dist worksteal
DEFAULT := not slow and not e2e and not chaos $(foreach server,$(SERVERS),and not $(server))
IN_PROCESS := tests/unit tests/golden tests/semantics
# Install Debian packages. Targets that run at the same time wait for each other; no package starts its service.
apt = flock -w 900 /tmp/penstock-apt.lock sh -c 'apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null'
# A file system in memory, if one has space. Flushes to a disk take a third of the time of the state tests.
MEMORY := $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 {print "TMPDIR=/dev/shm"}')

# Bytecode files are written even if the environment forbids it: each process would compile all modules again (4 s of CPU time).
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-python test-lives test-spark test-browser test-kafka test-postgres test-mariadb test-rabbitmq test-redis test-cassandra test-opensearch test-mongodb test-sql test-sqs test-kinesis test-registry test-iceberg test-lakespark test-prometheus test-soak test-api test-faults test-all test-e2e test-cluster images lint format types imports prose check lock clean crds docs quickstart cluster-up cluster-down cluster-status cluster-load

help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | column -t -s '	'

$(STAMP): requirements.lock tools/build.lock tools/go.lock tools/uv.lock pyproject.toml
	@tools/setup.sh "$(PYTHON)" "$(VENV)"
	@touch $@

setup: $(STAMP) ## create the virtual environment with the locked dependencies

demo: $(STAMP) ## run the main job on real input with checkpoints, a rescale and a killed worker; compare the output with DuckDB's
	@$(BIN)/python -m tools.demo

test: $(STAMP) ## run the default tests (about 12 minutes on two idle cores) with the operator killed at every STRIDE-th call (16), with a share of the examples of property tests (EXAMPLES=0.4), and with jobs on a real Kubernetes if one is available immediately
	@tools/parts.sh \
	  "in-process tests" '$(MEMORY) PENSTOCK_FAULTS_STRIDE=$(or $(STRIDE),16) PENSTOCK_EXAMPLES=$(or $(EXAMPLES),0.4) $(PYTEST) $(SPREAD) --durations=8 -m "$(DEFAULT)" $(IN_PROCESS) runtime/penstock' \
	  "tests with real processes" '$(PYTEST) $(WITH_PROCESSES) --durations=8 -m "$(DEFAULT)" tests $(addprefix --ignore=,$(IN_PROCESS))' \
	  "jobs on Kubernetes" '$(BIN)/python -m tests.e2e.here; case $$? in 0) $(PYTEST) -s -m e2e tests/e2e/test_deploy.py;; 75) ;; *) exit 1;; esac'

test-python: ## run the tests of the engine on another supported Python; OTHER=python3.13
	@tools/setup.sh "$(OTHER)" build/python
	@PENSTOCK_EXAMPLES=$(or $(EXAMPLES),0.1) $(MEMORY) build/python/bin/python -m tools.retry $(SPREAD) -m "$(DEFAULT)" tests/semantics tests/unit/state tests/unit/taskmanager tests/unit/common tests/unit/datastream
	@build/python/bin/python -m tools.retry -m "$(DEFAULT)" tests/integration/engine/programs/test_plain.py

test-lives: $(STAMP) ## run random lives of FlinkJobs, and of jobs with two masters, in simulations; LIVES=2000 FIRST=0
	@PENSTOCK_LIVES=$(or $(LIVES),2000) PENSTOCK_FIRST_LIFE=$(or $(FIRST),0) $(PYTEST) $(SPREAD) tests/unit/operator/flows/test_random_lives.py tests/unit/jobmanager/process/election/lives

test-spark: $(STAMP) ## test changes and faults on clusters of real Spark processes, and run a short soak
	@$(PYTEST) -m "spark and (slow or chaos) and not kafka" tests

test-browser: $(STAMP) ## test the dashboard in a real Chromium (fetched as root on Debian); pictures of its pages go to build/dashboard
	@command -v chromium >/dev/null || $(call apt,chromium)
	@[ -d build/axe ] || npm install --silent --no-audit --no-fund --prefix build/axe axe-core@4.14.1
	@$(PYTEST) -m browser tests/integration/dashboard

test-kafka: $(STAMP) ## test the Kafka connector on real brokers, killed and paused (Maven is fetched as root on Debian); ONLY="not security"
	@command -v mvn >/dev/null || $(call apt,maven)
	@$(PYTEST) --durations=8 -m "kafka and not chaos" $(if $(ONLY),-k "$(ONLY)") tests

test-postgres: $(STAMP) ## test the Postgres connector on a real server, killed and paused (fetched as root on Debian)
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || $(call apt,postgresql)
	@folder=$$(mktemp -d); $(PYTEST) -m postgres --basetemp=$$folder/tests tests; code=$$?; rm -rf $$folder; exit $$code

test-mariadb: $(STAMP) ## test the SQL connector on a real MariaDB, killed and paused (fetched as root on Debian)
	@command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || $(call apt,mariadb-server)
	@folder=$$(mktemp -d); $(PYTEST) -m mariadb --basetemp=$$folder/tests tests; code=$$?; rm -rf $$folder; exit $$code

test-rabbitmq: $(STAMP) ## test the RabbitMQ connector on a real broker, killed and paused (fetched as root on Debian)
	@ls /usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server >/dev/null 2>&1 || $(call apt,rabbitmq-server)
	@folder=$$(mktemp -d); $(PYTEST) -m rabbitmq --basetemp=$$folder/tests tests; code=$$?; rm -rf $$folder; exit $$code

test-redis: $(STAMP) ## test the Redis connector on a real server, killed and paused (fetched as root on Debian)
	@command -v redis-server >/dev/null || $(call apt,redis-server)
	@$(PYTEST) -m redis tests

test-cassandra: $(STAMP) ## test the Cassandra connector on a real server, killed and paused (Maven is fetched as root on Debian)
	@command -v mvn >/dev/null || $(call apt,maven)
	@$(PYTEST) -m cassandra tests

test-opensearch: $(STAMP) ## test the OpenSearch connector on a real server, killed and paused (Maven is fetched as root on Debian)
	@command -v mvn >/dev/null || $(call apt,maven)
	@command -v redis-server >/dev/null || $(call apt,redis-server)
	@$(PYTEST) -m opensearch tests

test-mongodb: $(STAMP) ## test the MongoDB connector on FerretDB, which speaks MongoDB's protocol, killed and paused
	@$(PYTEST) -m mongodb tests

test-sql: $(STAMP) ## test Flink SQL: functions against Flink's planner, queries against Flink's MiniCluster, programs
	@$(PYTEST) -m sql tests

test-sqs: $(STAMP) ## test the SQS connector on a real ElasticMQ, stopped and paused (Maven is fetched as root on Debian)
	@command -v mvn >/dev/null || $(call apt,maven)
	@$(PYTEST) -m sqs tests

test-kinesis: $(STAMP) ## test the Kinesis connector on a kinesis-mock, paused, its shards split and merged (Node.js is fetched as root on Debian)
	@command -v npm >/dev/null || $(call apt,nodejs npm)
	@$(PYTEST) -m kinesis tests

test-registry: $(STAMP) ## test Avro, Protobuf and JSON with a real schema registry, killed and paused (Maven is fetched as root on Debian)
	@command -v mvn >/dev/null || $(call apt,maven)
	@$(PYTEST) -m registry tests

test-iceberg: $(STAMP) ## test Iceberg's sink with a real REST catalog, killed and paused (Maven is fetched as root on Debian)
	@command -v mvn >/dev/null || $(call apt,maven)
	@$(PYTEST) -m iceberg_rest tests

test-lakespark: $(STAMP) ## test that a Spark with Delta's and Iceberg's connectors reads and changes the tables (fetched once; Maven as root on Debian)
	@command -v mvn >/dev/null || $(call apt,maven)
	@$(PYTEST) -m lakespark tests/integration/lakehouse

test-prometheus: $(STAMP) ## test alert rules and dashboards with a real promtool and a real Prometheus (built once)
	@$(PYTEST) -m prometheus tests/integration/observability

test-soak: $(STAMP) ## run a short soak: every kind of fault once, on real Spark and a real S3 server, with both runners or RUNNER=batched|pipelined (root, Linux)
	@$(PYTEST) -m chaos $(if $(RUNNER),-k $(RUNNER)) tests

test-api: $(STAMP) ## test on a real API server without pods: CRDs with kubectl, the chart's rights, a Prometheus operator's CRDs, Deployments on standby
	@$(PYTEST) -m "not e2e" $(addprefix tests/integration/operator/,test_kubectl.py test_rights.py test_monitors.py test_standing_by.py)

test-faults: $(STAMP) ## test kills of the operator, refused calls and edits at every STRIDE-th call of every flow
	@PENSTOCK_FAULTS_STRIDE=$(or $(STRIDE),1) $(PYTEST) $(SPREAD) -m faults tests/unit/operator

test-all: $(STAMP) ## run all tests that need no Kubernetes with pods, with the operator killed at every STRIDE-th call (4)
	@PENSTOCK_FAULTS_STRIDE=$(or $(STRIDE),4) $(PYTEST) -m "not e2e" tests runtime/penstock

test-e2e: $(STAMP) ## test on a real one-node Kubernetes (root, Linux): cluster, images, chart, self-verifying jobs; ONLY="not long"
	@$(PYTEST) -s --durations=12 -m "e2e$(if $(ONLY), and ($(ONLY)))" tests/e2e

images: $(STAMP) ## build the images penstock/base and penstock/operator with docker, podman or buildah; BUILDER=podman, REGISTRY=…, PLATFORMS=linux/amd64,linux/arm64
	@$(BIN)/python -m tools.images release $(if $(BUILDER),--builder $(BUILDER)) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(PLATFORMS),--platforms $(PLATFORMS))

test-cluster: $(STAMP) ## test the development cluster and the images (root, Linux)
	@$(PYTEST) -m e2e tests/tools

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(STAMP)
	@$(BIN)/mypy

imports: $(STAMP)
	@$(BIN)/lint-imports

prose: $(STAMP) ## check that texts are plain English; PATHS=runtime/penstock/common limits it to a folder, RULE=word to a rule
	@$(BIN)/python -m tools.prose $(if $(RULE),--rule $(RULE)) $(PATHS)

check: lint types imports prose ## check lint, types, import contracts and plain English

crds: $(STAMP) ## generate crds/ from the models
	@PYTHONPATH=operator:runtime $(BIN)/python -m penstock_operator.api.schema.generate

DOCS := build/docs-venv
$(DOCS)/.installed: tools/docs.lock
	@$(BIN)/python -m venv --clear $(DOCS)
	@$(DOCS)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r tools/docs.lock
	@touch $@

docs: $(STAMP) $(DOCS)/.installed ## build the documentation as a site with search in build/site; a broken link is an error
	@$(BIN)/python -m tools.site.generated
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(DOCS)/bin/python -m mkdocs build --strict
	@echo "The site is in build/site. To read it: $(PYTHON) -m http.server --directory build/site"

LOCK := uv pip compile -q --python-version 3.11 --no-annotate --no-header --no-emit-index-url --generate-hashes
# The jars of the extra flink-sql have 330 MB. Its version is fixed in pyproject.toml, and `make test-sql` downloads it.
EXTRAS := $(PYTHON) -c 'import tomllib; print(*("--extra=" + e for e in tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"] if e != "flink-sql"))'
lock: ## update requirements.lock, and the hashes of the tools in tools/*.in
	@$(LOCK) pyproject.toml $$($(EXTRAS)) -o requirements.lock
	@$(LOCK) --allow-unsafe tools/build.in -o tools/build.lock
	@$(LOCK) tools/docs.in -o tools/docs.lock
	@$(LOCK) tools/go.in -o tools/go.lock
	@$(LOCK) tools/uv.in -o tools/uv.lock

quickstart: $(STAMP) ## start the development cluster with an S3 server, the operator and the Secret of its storage (root, Linux)
	@sh tools/quickstart.sh
cluster-up: $(STAMP) ## start the development cluster
	@$(BIN)/python -m tools.devcluster up
cluster-down: $(STAMP)
	@$(BIN)/python -m tools.devcluster down
cluster-status: $(STAMP)
	@$(BIN)/python -m tools.devcluster status
cluster-load: $(STAMP) ## load IMAGE=… into the development cluster
	@$(BIN)/python -m tools.devcluster load $(IMAGE)

clean: ## remove everything that was built here
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
