"""The words of a sharded service, for texts of what it stands on, which has brokers and bundles."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from loadmanager.kit.errors import LoadManagerError, OperationalError

NAMESPACE = "service/shards"
"""Where all shards are, as bundles."""
_WORDS = {
    "namespace bundle": "shard",
    "bundle": "shard",
    "bundles": "shards",
    "broker": "member",
    "brokers": "members",
    "namespace": "service",
    "topic": "key",
    "topics": "keys",
    "open_bundle": "open",
    "settle_bundle": "close",
    "close_bundle": "close",
    "advertisedaddress or webserviceport": "address",
    "metadatastoreurl": "the store's URL",
    "bundle_load": "shard_load",
    "topic_load": "key_load",
    "the next lookup places": "the leader or the next request places",
    "the next lookups place": "the leader or the next requests place",
    "the next lookups": "the next requests",
    "this broker goes on serving": "a member goes on serving",
    "serves only stored topics that are open": "serves nothing",
}
_PATTERN = re.compile(
    rf"{NAMESPACE}/?|\b(?:{'|'.join(sorted(_WORDS, key=len, reverse=True))})\b", re.IGNORECASE
)


def of_shards(text: str) -> str:
    """A text in these words."""
    return _PATTERN.sub(_word, text)


def _word(match: re.Match[str]) -> str:
    word = match.group()
    other = _WORDS.get(word.lower(), "")
    return other.capitalize() if word[0].isupper() else other


@contextmanager
def words_of_shards() -> Iterator[None]:
    """Errors are raised in these words, also to callers of a member that ends meanwhile: nobody
    has cancelled them.
    """
    try:
        yield
    except LoadManagerError as error:
        raise type(error)(of_shards(str(error))) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise OperationalError("this member has ended meanwhile") from None


def lines_of_shards(event: str, fields: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """A line of the log in these words, without the fields that say nothing."""
    said = {
        of_shards(name): of_shards(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }
    return of_shards(event), {
        name: value for name, value in said.items() if value is not None and value != ""
    }
