#!/usr/bin/env bash
# Resolves every extra for Python 3.10 and newer, on any platform, into constraints.txt.
# No index address and no path gets into the file, so it serves whoever installs from wherever.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_CACHE_DIR="$PWD/.work/cache/uv"
mkdir -p .work
{
  echo "# Versions that the tests ran with. Made by 'make constraints'; do not edit."
  .venv/bin/python -m uv pip compile pyproject.toml --universal --python-version 3.10 --all-extras \
    --override scripts/uv-overrides.txt \
    --quiet --no-annotate --no-header --no-emit-index-url --no-emit-find-links --upgrade
} > .work/constraints.new
if grep -nE '://|@ ' .work/constraints.new; then
  echo "constraints: the resolved list names an address (above); it must hold versions only" >&2
  exit 1
fi
mv .work/constraints.new constraints.txt
