#!/usr/bin/env bash
# Train on one ps and two workers on this machine, bring the checkpoint home, and measure it.
set -euo pipefail
cd "$(dirname "$0")"

report=$(mktemp)
trap 'rm -f "$report"' EXIT

tfdeploy run --hosts hosts.toml --json >"$report" # what it is doing goes to stderr
collected=$(python -c 'import json, sys; print(json.load(sys.stdin)["collected"])' <"$report")
python eval.py "$collected/checkpoints" --min-accuracy 0.93 # says where the checkpoint lies, too
