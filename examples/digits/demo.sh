#!/usr/bin/env bash
# Train with one ps and two workers on this machine, collect the checkpoint, and measure it.
set -euo pipefail
cd "$(dirname "$0")"

report=$(mktemp)
trap 'rm -f "$report"' EXIT

echo '$ tfdeploy trust   # in examples/digits'
tfdeploy trust --hosts hosts.toml
echo '$ tfdeploy run'
tfdeploy run --hosts hosts.toml --json >"$report" # progress goes to stderr
collected=$(python -c 'import json, sys; print(json.load(sys.stdin)["collected"])' <"$report")
echo "$ python eval.py ${collected#"$PWD"/}/checkpoints"
python eval.py "$collected/checkpoints" --min-accuracy 0.93 # also prints the path of the checkpoint
