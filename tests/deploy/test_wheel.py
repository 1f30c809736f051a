"""The wheel alone is enough: its metadata are complete, and a cluster runs from it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from clusters.standalone import wait_for
from ports import free_ports

from loadmanager import __version__

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.system, pytest.mark.zookeeper, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as `make dist` does, with the tools that are installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"),
            *("--no-build-isolation", "--wheel-dir", folder, _copy(folder / "source")),
        ],
        check=True,
    )
    (built,) = folder.glob("*.whl")
    return built


def _copy(folder: Path) -> Path:
    """The files of a commit or of the work tree, so that building leaves nothing behind here."""
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    for path in (ROOT / "loadmanager").rglob("*"):
        target = folder / path.relative_to(ROOT)
        if path.is_file() and "__pycache__" not in path.parts:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return folder


def test_its_metadata_are_complete(wheel: Path) -> None:
    """What a person sees of the package before installing it; and nothing of tests is in it."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA")))
    told = Parser().parsestr(metadata.decode())
    assert told["Version"] == __version__
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Description-Content-Type"] == "text/markdown"
    assert told["Requires-Python"] == ">=3.11"
    for field in ("Summary", "Author", "Keywords", "Classifier", "License-File"):
        assert told[field], field
    assert {"java", "standalone", "analysis", "demo"} <= set(told.get_all("Provides-Extra", []))
    assert str(told.get_payload()).startswith("# loadmanager")
    assert {name.split("/")[0] for name in names} == {
        "loadmanager",
        f"loadmanager-{__version__}.dist-info",
    }


def test_what_is_published_beside_it(wheel: Path, tmp_path: Path) -> None:
    """One file by which pip installs this wheel, and what the image has, by their hashes; another
    wheel of that name is refused. The versions that were tested are there, too.
    """
    shutil.copy(wheel, tmp_path)
    subprocess.run([sys.executable, ROOT / "deploy" / "requirements.py", tmp_path], check=True)
    text = (tmp_path / "requirements.txt").read_text()
    assert text.startswith(f"loadmanager[broker,otel]=={__version__} \\\n    --hash=sha256:")
    assert text.endswith((ROOT / "deploy" / "requirements.txt").read_text())
    constraints = "constraints.txt"
    assert (tmp_path / constraints).read_bytes() == (ROOT / constraints).read_bytes()
    own = tmp_path / "own.txt"
    own.write_text("".join(text.partition("\naiohappyeyeballs==")[:1]))
    install = [
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--no-index"),
        *("--ignore-installed", "--disable-pip-version-check", "--find-links", tmp_path),
        *("--require-hashes", "--requirement", own),
    ]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert f"Would install loadmanager-{__version__}" in done.stdout, done.stderr
    with (tmp_path / wheel.name).open("ab") as file:
        file.write(b"\n")
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH" in done.stderr


def test_a_cluster_runs_from_it(wheel: Path, tmp_path: Path) -> None:
    """`loadmanager standalone` in an environment that has the wheel and what it depends on."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet"),
            *("--no-deps", "--no-index", "--disable-pip-version-check", wheel),
        ],
        check=True,
    )
    packages = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    # What it depends on is that of this environment; its links to other folders are not followed.
    for path in Path(_site_packages()).iterdir():
        if "loadmanager" not in path.name and not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    ports = free_ports(3)
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(tmp_path / "venv" / "bin" / "loadmanager", "standalone", "--brokers", "1"),
                *("--pulsar-port", str(ports), "--http-port", str(ports + 1)),
                *("--zookeeper-port", str(ports + 2), "--no-restart"),
            ],
            cwd=tmp_path,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        wait_for(
            lambda: process.poll() is not None or b"is ready after" in log.read_bytes(),
            "the cluster is ready",
            timeout_s=240,
        )
        assert process.poll() is None, log.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()


def _site_packages() -> str:
    import click

    return str(Path(click.__file__).parents[1])
