#!/bin/sh
# Create the virtual environment with the locked dependencies. Name exactly the packages that the system lacks.
set -eu
python=$1
venv=$2
if ! command -v "$python" >/dev/null 2>&1; then
  if python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
    python=python3
  else
    echo "Python 3.11, 3.12 or 3.13 is needed and was not found: apt-get install python3 python3-venv" >&2
    exit 1
  fi
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
  else
    echo "Python's venv module is missing: sudo apt-get install python3-venv" >&2
    exit 1
  fi
fi
say() { echo "setup: $1" >&2; }
say "create $venv with $("$python" --version)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
say "download and install the locked packages, some minutes the first time"
# Every file has a hash in a lock. The locked tools build the packages that have no wheel.
"$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r tools/uv.lock -r tools/build.lock
# uv downloads in parallel and links files from its cache. It does not read pip's configuration (an own index, certificates).
if ! "$venv/bin/uv" pip install -q --python "$venv/bin/python" --require-hashes --no-build-isolation -r requirements.lock; then
  say "uv could not install the packages: try pip"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-build-isolation -r requirements.lock
fi
PYTHONWARNINGS=ignore "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
# Go builds the S3 server of the demo and the tests. From 1.21 on, Go fetches the version that it needs.
case "$(go env GOVERSION 2>/dev/null)" in
  "" | go1.[0-9] | go1.[0-9].* | go1.1[0-9]* | go1.20*) has_go= ;;
  *) has_go=yes ;;
esac
if [ -z "$has_go" ] && [ -z "${PENSTOCK_TEST_S3_ENDPOINT:-}" ]; then
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r tools/go.lock
fi
say "create an archive of Spark's classes"
# Create an archive of the classes that Spark's JVMs load (90 MB in the cache). It halves the CPU time of a cluster's start.
if ! "$venv/bin/python" -m penstock.jobmanager.cluster.jvm.class_archive >/dev/null; then
  echo "warning: the archive of Spark's classes could not be created; clusters start more slowly without it" >&2
fi
