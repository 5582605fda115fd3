#!/usr/bin/env bash
# The main job on a fresh machine, no keys: trains a tri-role coordinator on a simulated pool and says whether it helped.
# Further arguments go to experiments/run.py, such as: scripts/quickstart.sh --set seed=1
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
exec "${TRINITY_VENV:-.venv}/bin/python" experiments/run.py --config experiments/configs/quickstart.yaml "$@"
