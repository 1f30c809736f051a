"""Commands to paste: clients choose names, and none of them is a command of its own."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import cast

import pytest

from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.nightly.day import Day, command
from loadmanager.nightly.facts import Facts
from loadmanager.nightly.ingest import Ingest
from loadmanager.nightly.questions import hot_topics, namespaces

EVIL = "persistent://t/n/x'; $(touch y) `id` <b>"


def test_the_name_of_a_topic_is_one_word() -> None:
    """Whatever characters it has."""
    row = SimpleNamespace(
        topic=EVIL, bundle="b", share=0.9, bytes=9.0, throughput_mean=1.0, throughput_max=1.0
    )
    facts = Facts(cast("Ingest", None), StrategySettings(), 0)
    facts.brokers = [{"broker": name, "first_ts": 0, "last_ts": 0} for name in ("b0", "b1", "b2")]
    facts.busiest_topics = []
    day = Day("c", "2026-11-20", facts, StrategySettings())
    (finding,) = hot_topics.findings([row, SimpleNamespace(share=0.0)], day)
    (line,) = finding.commands
    assert shlex.split(line) == ["loadmanager", "admin", "topics", "partitions", EVIL]


def test_the_name_of_a_bundle_is_one_word() -> None:
    """Of a history that somebody else wrote, too."""
    bundle = "t/n;id/0x00000000_0xffffffff"
    topics = [(hash_, "topic", 1.0) for hash_ in (1, 0x90000000)]
    (line,) = namespaces.commands([bundle], [0x80000000], topics)
    assert shlex.split(line)[:5] == ["loadmanager", "admin", "bundles", "split", bundle]
    assert shlex.quote(bundle) in line


@pytest.mark.parametrize(
    "name", ["", "--help", "t/n\nid", "t/\x03\nid", "t/\x1b[201~", "t/\u202ex"]
)
def test_a_name_that_is_more_than_a_word_has_no_command(name: str) -> None:
    """Quotes do not keep a terminal from Ctrl-C, nor a program from options."""
    assert command("loadmanager admin bundles split", name) == []
    topics = [(hash_, "topic", 1.0) for hash_ in (1, 0x90000000)]
    assert namespaces.commands([name and f"{name}/0x0_0xffffffff"], [0x80000000], topics) == []
