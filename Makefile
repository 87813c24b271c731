# Everything a developer needs. `make demo` and `make test` set up what they need by themselves.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest -q
SERVERS := kafka postgres mariadb rabbitmq redis cassandra opensearch mongodb sqs kinesis registry iceberg_rest lakespark
SPREAD := -n logical --maxprocesses 8 --dist worksteal

.PHONY: help setup demo test test-spark test-browser test-kafka test-postgres test-mariadb test-rabbitmq test-redis test-cassandra test-opensearch test-mongodb test-sqs test-kinesis test-registry test-iceberg test-lakespark test-prometheus test-soak test-api test-faults test-all test-e2e test-cluster lint format types imports check lock clean crds cluster-up cluster-down cluster-status cluster-load

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | column -t -s '	'

$(STAMP): requirements.lock pyproject.toml
	@tools/setup.sh "$(PYTHON)" "$(VENV)"
	@touch $@

setup: $(STAMP) ## virtual environment with the locked dependencies

demo: $(STAMP) ## run the main job on real input: checkpoints, rescale, a killed worker, compared with DuckDB
	@$(BIN)/python -m tools.demo

test: $(STAMP) ## the default tests (under 12 minutes); with jobs on a real Kubernetes where one can be had at once
	@$(PYTEST) $(SPREAD) -m "not slow and not e2e and not chaos" tests/unit runtime/penstock
	@$(PYTEST) -m "not slow and not e2e and not chaos $(foreach server,$(SERVERS),and not $(server))" tests --ignore=tests/unit
	@$(BIN)/python -m tests.e2e.here; case $$? in 0) $(PYTEST) -s -m e2e tests/e2e/test_deploy.py;; 75) ;; *) exit 1;; esac

test-spark: $(STAMP) ## changes and faults on clusters of real Spark processes, and a short soak
	@$(PYTEST) -m "spark and (slow or chaos) and not kafka" tests

test-browser: $(STAMP) ## the dashboard in a real Chromium (fetched as root on Debian); pictures of its pages in build/dashboard
	@command -v chromium >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null)
	@[ -d build/axe ] || npm install --silent --no-audit --no-fund --prefix build/axe axe-core@4.14.1
	@$(PYTEST) -m browser tests/integration/dashboard

test-kafka: $(STAMP) ## the Kafka connector on real brokers, killed and paused (Maven is fetched as root on Debian); ONLY="not security"
	@command -v mvn >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven >/dev/null)
	@$(PYTEST) --durations=8 -m "kafka and not chaos" $(if $(ONLY),-k "$(ONLY)") tests

test-postgres: $(STAMP) ## the Postgres connector on a real server, killed and paused (fetched as root on Debian)
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null)
	@folder=$$(mktemp -d); $(PYTEST) -m postgres --basetemp=$$folder/tests tests; code=$$?; rm -rf $$folder; exit $$code

test-mariadb: $(STAMP) ## the SQL connector on a real MariaDB, killed and paused (fetched as root on Debian)
	@command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || (apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mariadb-server >/dev/null)
	@folder=$$(mktemp -d); $(PYTEST) -m mariadb --basetemp=$$folder/tests tests; code=$$?; rm -rf $$folder; exit $$code

test-rabbitmq: $(STAMP) ## the RabbitMQ connector on a real broker, killed and paused (fetched as root on Debian)
	@ls /usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server >/dev/null 2>&1 || (apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends rabbitmq-server >/dev/null)
	@folder=$$(mktemp -d); $(PYTEST) -m rabbitmq --basetemp=$$folder/tests tests; code=$$?; rm -rf $$folder; exit $$code

test-redis: $(STAMP) ## the Redis connector on a real server, killed and paused (fetched as root on Debian)
	@command -v redis-server >/dev/null || (apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server >/dev/null)
	@$(PYTEST) -m redis tests/integration/redis

test-cassandra: $(STAMP) ## the Cassandra connector on a real server, killed and paused (Maven is fetched as root on Debian)
	@command -v mvn >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven >/dev/null)
	@$(PYTEST) -m cassandra tests

test-opensearch: $(STAMP) ## the OpenSearch connector on a real server, killed and paused (Maven is fetched as root on Debian)
	@command -v mvn >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven >/dev/null)
	@command -v redis-server >/dev/null || (apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server >/dev/null)
	@$(PYTEST) -m opensearch tests

test-mongodb: $(STAMP) ## the MongoDB connector on a FerretDB, which speaks MongoDB's protocol, killed and paused
	@$(PYTEST) -m mongodb tests

test-sqs: $(STAMP) ## the SQS connector on a real ElasticMQ, stopped and paused (Maven is fetched as root on Debian)
	@command -v mvn >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven >/dev/null)
	@$(PYTEST) -m sqs tests

test-kinesis: $(STAMP) ## the Kinesis connector on a kinesis-mock, paused, its shards split and merged (Node.js is fetched as root on Debian)
	@command -v npm >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null)
	@$(PYTEST) -m kinesis tests

test-registry: $(STAMP) ## Avro, Protobuf and JSON with a real schema registry, killed and paused (Maven is fetched as root on Debian)
	@command -v mvn >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven >/dev/null)
	@$(PYTEST) -m registry tests

test-iceberg: $(STAMP) ## Iceberg's sink with a real REST catalog, killed and paused (Maven is fetched as root on Debian)
	@command -v mvn >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven >/dev/null)
	@$(PYTEST) -m iceberg_rest tests

test-lakespark: $(STAMP) ## Delta and Iceberg tables read and changed by a Spark with their own connectors (fetched once; Maven as root on Debian)
	@command -v mvn >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven >/dev/null)
	@$(PYTEST) -m lakespark tests/integration/lakehouse

test-prometheus: $(STAMP) ## alert rules and dashboards by a real promtool and a real Prometheus (built once)
	@$(PYTEST) -m prometheus tests/integration/observability

test-soak: $(STAMP) ## a short soak: every kind of fault once, on real Spark and a real S3 server, both runners, or RUNNER=batched|pipelined (root, Linux)
	@$(PYTEST) -m chaos $(if $(RUNNER),-k $(RUNNER)) tests

test-api: $(STAMP) ## on a real API server without pods: CRDs under kubectl, the chart's rights, a Prometheus operator's CRDs, Deployments that stand by
	@$(PYTEST) -m "not e2e" $(addprefix tests/integration/operator/,test_kubectl.py test_rights.py test_monitors.py test_standing_by.py)

test-faults: $(STAMP) ## the operator killed, its calls refused and edits made at every STRIDE-th call of every flow
	@PENSTOCK_FAULTS_STRIDE=$(or $(STRIDE),1) $(PYTEST) $(SPREAD) -m faults tests/unit/operator

test-all: $(STAMP) ## all tests that need no Kubernetes with pods; the operator is killed at every STRIDE-th call (4)
	@PENSTOCK_FAULTS_STRIDE=$(or $(STRIDE),4) $(PYTEST) -m "not e2e" tests runtime/penstock

test-e2e: $(STAMP) ## the tests on a real one-node Kubernetes (root, Linux): cluster, images, chart, self-verifying jobs; ONLY="not long"
	@$(PYTEST) -s --durations=12 -m "e2e$(if $(ONLY), and ($(ONLY)))" tests/e2e

test-cluster: $(STAMP) ## the tests of the development cluster and of the images themselves (root, Linux)
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

check: lint types imports ## lint, types, import contracts

crds: $(STAMP) ## generate crds/ from the models
	@PYTHONPATH=operator:runtime $(BIN)/python -m penstock_operator.api.generate

lock: ## renew requirements.lock
	@uv pip compile -q pyproject.toml --all-extras --python-version 3.11 --no-annotate --no-header --no-emit-index-url -o requirements.lock

cluster-up: $(STAMP) ## start the development cluster
	@$(BIN)/python -m tools.devcluster up
cluster-down: $(STAMP)
	@$(BIN)/python -m tools.devcluster down
cluster-status: $(STAMP)
	@$(BIN)/python -m tools.devcluster status
cluster-load: $(STAMP) ## load IMAGE=… into the development cluster
	@$(BIN)/python -m tools.devcluster load $(IMAGE)

clean: ## remove what was built here
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
