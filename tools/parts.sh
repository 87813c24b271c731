#!/usr/bin/env bash
# Run commands one after the other until one fails, and print the seconds of each and of all at the end.
# Usage: parts.sh NAME COMMAND [NAME COMMAND]…
set -uo pipefail
started=$SECONDS
took=
trap 'printf "\n== seconds of each part\n%s%6s s  in all\n" "$took" "$((SECONDS - started))"' EXIT
while [ $# -ge 2 ]; do
  began=$SECONDS
  bash -c "$2"
  code=$?
  took+=$(printf '%6s s  %s' "$((SECONDS - began))" "$1")$'\n'
  if [ "$code" != 0 ]; then
    echo "== failed: $1" >&2
    exit "$code"
  fi
  shift 2
done
