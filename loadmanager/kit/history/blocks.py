"""Reads files of the history in blocks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

READ_BYTES = 1 << 18


def plain_blocks(file: Any) -> Iterator[bytes]:
    """What a gzip file holds, decompressed in blocks. Raises `zlib.error` for a damaged one."""
    unpacking = zlib.decompressobj(wbits=31)
    while block := file.read(READ_BYTES):
        while block:
            if unpacking.eof:  # another member; anything else is an error
                unpacking = zlib.decompressobj(wbits=31)
            yield unpacking.decompress(block, READ_BYTES)
            block = unpacking.unconsumed_tail or unpacking.unused_data
    while not unpacking.eof:
        rest = unpacking.decompress(b"", READ_BYTES)
        if not rest:
            raise zlib.error("the file ends before its contents do")
        yield rest
