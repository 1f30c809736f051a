#!/bin/sh
# Core tests and a running cluster on one version of Python: deploy/matrix.sh 3.12 [lowest]
# With `lowest`, each dependency that pyproject.toml names has the lowest version that it allows
# there, instead of that of constraints.txt; with `newest`, the newest one.
# The interpreter is pythonX.Y, or the newest X.Y of pyenv. Without one, says so and succeeds.
set -eu
version=$1
which=${2:-}
venv=.matrix/$version${which:+-$which}

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
echo "Python $version${which:+, $which versions}: $("$python" --version) of $python"
rm -rf "$venv"
"$python" -m venv --without-pip "$venv"
# pip has no lowest versions, and needs tens of minutes to find tools that go with them.
if [ ! -x .matrix/uv/bin/uv ]; then
    "$python" -m venv .matrix/uv
    .matrix/uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.7,<1'
fi
uv() { .matrix/uv/bin/uv pip "$@" --quiet --python "$venv/bin/python"; }
case $which in
    lowest)
        # The tests and their tools come afterwards, and change nothing.
        uv compile --resolution lowest-direct --extra broker pyproject.toml --output-file "$venv/lowest.txt"
        uv install --constraint "$venv/lowest.txt" --editable '.[dev]'
        ;;
    newest) uv install --editable '.[dev]' ;;
    *) uv install --constraint constraints.txt --editable '.[dev]' ;;
esac
"$venv/bin/pytest" --quiet -p no:cacheprovider --numprocesses 2 -m "not slow" \
    tests/engine tests/limits tests/scenarios tests/broker/wire tests/system/test_over_http.py
echo "Python $version${which:+, $which versions}: passed"
