#!/bin/sh
# Pin what pyproject.toml asks for today: make_lock.sh PYTHON FILE. Uses a throw-away environment.
set -eu
python=$1
file=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$python" -m venv "$dir/venv"
"$dir/venv/bin/python" -m pip --disable-pip-version-check -q install -e '.[dev]'
{
    echo "# Exact versions for development on Python 3.11 to 3.13; 'make lock' writes this file."
    "$dir/venv/bin/python" -m pip freeze --exclude-editable | grep -viE '^(pip|setuptools)='
} >"$file"
