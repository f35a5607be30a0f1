#!/bin/sh
# Build the virtual environment: make_venv.sh PYTHON DIR. Touches nothing outside DIR, except that
# root on a Debian without the venv module gets it from apt.
set -eu
python=$1
dir=$2

command -v "$python" >/dev/null || {
    echo "setup: no '$python' here; install Python 3.11 or later, or say make PYTHON=..." >&2
    exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: $("$python" -V) is too old, 3.11 or later is needed: make PYTHON=python3.12" >&2
    exit 1
}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing $package, which Debian keeps apart from python3"
        apt-get install -y -q "$package" || { apt-get update -q && apt-get install -y -q "$package"; }
    else
        echo "setup: Python's venv module is missing; install it: apt-get install $package" >&2
        exit 1
    fi
fi

[ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
pip="$dir/bin/python -m pip --disable-pip-version-check -q"
$pip install -r requirements-dev.lock
$pip install --no-deps -e .
$pip check >/dev/null || $pip check
