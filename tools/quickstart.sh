#!/bin/sh
# `make quickstart` runs this file: a development cluster with an S3 server, the base image, the operator, and the Secret of the storage.
# docs/operator/quickstart.md explains each command. Everything that exists already stays as it is, so the file can run again.
set -e
PATH="$PWD/.venv/bin:$PATH"
python -m tools.devcluster up
eval "$(python -m tools.devcluster kubeconfig --export)"
HOST=$(python -c 'from tools.devcluster import Cluster; print(Cluster("dev").host_address)')
eval "$(python -m tools.servers s3 start --state-dir ~/.penstock-s3 --host $HOST --bucket penstock)"
python -m tools.images build base operator
python -m tools.devcluster load localhost/penstock-base:dev localhost/penstock-operator:dev
helm upgrade --install penstock charts/penstock-operator --namespace penstock-system --create-namespace --set image.repository=localhost/penstock-operator,image.tag=dev --wait
kubectl create secret generic penstock-s3 --from-literal=AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID --from-literal=AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY --from-literal=AWS_ENDPOINT_URL=$AWS_ENDPOINT_URL --from-literal=AWS_REGION=us-east-1 --dry-run=client -o yaml | kubectl apply -f -
echo 'The cluster is ready. To use it from this shell: eval "$(.venv/bin/python -m tools.devcluster kubeconfig --export)"'
