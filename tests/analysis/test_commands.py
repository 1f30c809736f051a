"""Commands to paste: clients choose names, and none of them is a command of its own."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import cast

from loadmanager.analysis.day import Day
from loadmanager.analysis.questions import hot_topics, namespaces

EVIL = "persistent://t/n/x'; $(touch y) `id` <b>"


def test_the_name_of_a_topic_is_one_word() -> None:
    """Whatever characters it has."""
    row = SimpleNamespace(
        topic=EVIL, bundle="b", share=0.9, bytes=9.0, throughput_mean=1.0, throughput_max=1.0
    )
    brokers = SimpleNamespace(brokers=[{"broker": "b0"}, {"broker": "b1"}, {"broker": "b2"}])
    day = cast("Day", SimpleNamespace(facts=brokers, answers={}))
    (finding,) = hot_topics.findings([row, SimpleNamespace(share=0.0)], day)
    (command,) = finding.commands
    assert shlex.split(command) == ["loadmanager", "admin", "topics", "partitions", EVIL]


def test_the_name_of_a_bundle_is_one_word() -> None:
    """Of a history that somebody else wrote, too."""
    bundle = "t/n;id/0x00000000_0xffffffff"
    topics = [(hash_, "topic", 1.0) for hash_ in (1, 0x90000000)]
    (command,) = namespaces.commands([bundle], [0x80000000], topics)
    assert shlex.split(command)[:5] == ["loadmanager", "admin", "bundles", "split", bundle]
    assert shlex.quote(bundle) in command
