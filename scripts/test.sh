#!/usr/bin/env bash
# Installs the test extra and runs the tests; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh test
exec "${TRINITY_VENV:-.venv}/bin/python" -m pytest "$@"
