#!/usr/bin/env bash
# Creates .venv with everything that the project needs; returns at once when nothing has changed.
# Writes only inside the checkout. PYTHON names another interpreter (3.10 or newer).
set -euo pipefail
cd "$(dirname "$0")/.."

export UV_CACHE_DIR="$PWD/.work/cache/uv" PIP_CACHE_DIR="$PWD/.work/cache/pip"
export PIP_DISABLE_PIP_VERSION_CHECK=1
extras="${EXTRAS:-test,dev}"
stamp=.venv/relay-setup.stamp

# The path belongs to the fingerprint: an editable install does not survive a move of the checkout.
fingerprint="$({ pwd; echo "$extras"; cat pyproject.toml constraints.txt scripts/setup.sh scripts/uv-overrides.txt; } | cksum)"
if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$fingerprint" ]; then
  exit 0
fi

is_supported() {
  "$1" -c 'import sys; raise SystemExit(not (3, 10) <= sys.version_info[:2] < (3, 15))' 2>/dev/null
}

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.10 python3.14 python; do
    if is_supported "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  echo "setup: no Python 3.10 to 3.14 found on PATH; install one, or name it: make setup PYTHON=/path/to/python3" >&2
  return 1
}

if ! is_supported .venv/bin/python; then
  python="$(find_python)"
  echo "setup: creating .venv with $("$python" --version)"
  rm -rf .venv
  if ! "$python" -m venv .venv; then
    rm -rf .venv
    echo "setup: '$python -m venv' failed; on Debian and Ubuntu install the package python3-venv, then run make again" >&2
    exit 1
  fi
fi

echo "setup: installing .[$extras] under constraints.txt (a few minutes on the first run)"
if .venv/bin/python -m uv --version >/dev/null 2>&1 ||
  .venv/bin/python -m pip install --quiet --constraint constraints.txt uv; then
  .venv/bin/python -m uv pip install --quiet \
    --python .venv/bin/python --constraint constraints.txt --override scripts/uv-overrides.txt --editable ".[$extras]"
else
  echo "setup: uv cannot be installed here, using pip" >&2
  .venv/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[$extras]"
fi
.venv/bin/python -c 'import airflow_relay'
echo "$fingerprint" > "$stamp"
echo "setup: done"
