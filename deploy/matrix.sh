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
"$python" -m venv "$venv"
pip="$venv/bin/pip install --quiet --no-compile --disable-pip-version-check"
case $which in
    lowest)
        # pip has no such choice. The tests and their tools come afterwards, and change nothing.
        $pip uv
        "$venv/bin/uv" pip compile --quiet --python "$venv/bin/python" \
            --resolution lowest-direct pyproject.toml --output-file "$venv/lowest.txt"
        $pip --requirement "$venv/lowest.txt"
        $pip --constraint "$venv/lowest.txt" --editable '.[dev]'
        ;;
    newest) $pip --upgrade --upgrade-strategy eager --editable '.[dev]' ;;
    *) $pip --constraint constraints.txt --editable '.[dev]' ;;
esac
"$venv/bin/pytest" --quiet -p no:cacheprovider --numprocesses 2 -m "not slow" tests/engine tests/limits tests/scenarios \
    tests/broker/wire tests/system/test_over_http.py
echo "Python $version: passed"
