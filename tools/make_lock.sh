#!/bin/sh
# Pin what pyproject.toml asks for today, with the hashes of all files of each version:
# make_lock.sh PYTHON FILE. Uses a throw-away environment. pip takes no file with another hash.
set -eu
python=$1
file=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$python" -m venv "$dir/venv"
pip="$dir/venv/bin/python -m pip --disable-pip-version-check -q"
$pip install -e '.[dev]'
$pip freeze --exclude-editable | grep -viE '^(pip|setuptools)=' >"$dir/versions.txt"
$pip install uv
{
    echo "# Exact versions for development on Python 3.11 to 3.13; 'make lock' writes this file."
    "$dir/venv/bin/uv" pip compile --quiet --no-deps --no-header --no-annotate --generate-hashes \
        "$dir/versions.txt"
} >"$file"
