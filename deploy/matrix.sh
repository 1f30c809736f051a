#!/bin/sh
# Core tests and a running cluster on one version of Python: deploy/matrix.sh 3.12
# The interpreter is pythonX.Y, or the newest X.Y of pyenv. Without one, says so and succeeds.
set -eu
version=$1
venv=.matrix/$version

interpreter() {
    for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
        if "$python" -c 'import venv' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
}

python=$(interpreter)
if [ -z "$python" ]; then
    echo "Python $version: absent, skipped"
    exit 0
fi
echo "Python $version: $("$python" --version) of $python"
"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt \
    --editable '.[dev]'
"$venv/bin/pytest" --quiet -p no:cacheprovider --numprocesses 2 -m "not slow" tests/engine tests/limits tests/scenarios \
    tests/system/test_over_http.py
echo "Python $version: passed"
