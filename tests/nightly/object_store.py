"""A store that speaks S3: moto's server, which must be on the PATH."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from ports import free_port

READY_TIMEOUT_S = 120.0


@contextmanager
def an_object_store(folder: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """An empty bucket `bucket`, as a file system of fsspec, and the options that reach it; programs
    that are started find it, too.
    """
    port = free_port()
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{port}"}
    own = {"FSSPEC_S3": json.dumps(options), "AWS_DEFAULT_REGION": "us-east-1"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    with (folder / "server.log").open("wb") as log:
        command = ["moto_server", "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        files = fsspec.filesystem(
            "s3", **options, use_listings_cache=False, skip_instance_cache=True
        )
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                files.mkdir("bucket")
                break
            except Exception:  # noqa: BLE001 - the server is not ready
                assert time.monotonic() < deadline_s, (folder / "server.log").read_text()
                time.sleep(0.2)
        yield files, options
    finally:
        server.terminate()
        server.wait()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
