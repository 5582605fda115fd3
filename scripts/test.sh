#!/usr/bin/env bash
# Installs the test extra and runs the tests on two cores; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh test
exec "${TRINITY_VENV:-.venv}/bin/python" -m pytest -n "${TRINITY_TEST_PROCESSES:-2}" --dist worksteal "$@"
