"""What a change of the audit log is in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.leader.change_words import VALUES_MAX, in_words

POLICIES = "/admin/policies/shop/orders"
RATE = '{"publishMaxMessageRate":{"c":{"publishThrottlingRateInMsg":%s}}}'


@pytest.mark.parametrize(
    ("what", "path", "before", "after", "words"),
    [
        (
            "POST /admin/v2/namespaces/shop/orders/publishRate?forSeconds=60",
            POLICIES,
            RATE % 7,
            RATE % 9,
            "set publishRate of shop/orders: publishThrottlingRateInMsg 9 (was 7)",
        ),
        (
            "POST /loadmanager/v1/undo",
            POLICIES,
            RATE % 5,
            "{}",
            (
                "undid changes of the namespace shop/orders: "
                "publishThrottlingRateInMsg not set (was 5)"
            ),
        ),
        (
            "POST /loadmanager/v1/undo",
            "/admin/topic-policies/shop/orders/persistent/t",
            '{"rate":1}',
            "{}",
            "undid changes of persistent://shop/orders/t: rate not set (was 1)",
        ),
        (
            "POST /loadmanager/v1/undo",
            "/admin/configuration",
            '{"a":"1"}',
            "{}",
            'undid changes of settings: a not set (was "1")',
        ),
        (
            "POST /admin/v2/namespaces/shop/orders/publishRate?forSeconds=60",
            "/loadmanager/wishes/limit-ends/x",
            None,
            '{"untilMs":1700000000000}',
            "set publishRate of shop/orders: it ends at 2023-11-14 22:13:20Z",
        ),
        (
            "DELETE /admin/v2/persistent/shop/orders/a%20b/dispatchRate",
            POLICIES,
            '{"rate":1}',
            "{}",
            "removed dispatchRate of persistent://shop/orders/a b: rate not set (was 1)",
        ),
        (
            "PUT /admin/v2/namespaces/shop/orders",
            "/admin/local-policies/shop/orders",
            None,
            "{}",
            "made the namespace shop/orders: its bundles",
        ),
        (
            "POST /loadmanager/v1/goals",
            "/loadmanager/wishes/goals/1-g1",
            None,
            '{"goal":{"kind":"even","withinPoints":5.0},"state":"proposed","limits":{"moves":40}}',
            "proposed the goal 1-g1: all brokers within 5.0 points of the mean; at most 40 moves",
        ),
        (
            "POST /loadmanager/v1/goals",
            "/loadmanager/wishes/goals/1-g4",
            None,
            (
                '{"goal":{"kind":"spare"},"state":"proposed","note":"the sale","limits":'
                '{"fromMs":1000,"untilMs":61000,"windows":["22:00-06:00"],"stay":["a"]}}'
            ),
            (
                "proposed the goal 1-g4: any one broker may be lost; "
                "no move before 1970-01-01 00:00:01Z; to be done by 1970-01-01 00:01:01Z; "
                "moves only in 22:00-06:00; stay: a; note: the sale"
            ),
        ),
        (
            "POST /loadmanager/v1/goals",
            "/loadmanager/wishes/goals/1-g2",
            None,
            '{"goal":{"kind":"apart","names":["a","b/c"]},"state":"approved"}',
            "ordered the goal 1-g2: a, b/c apart",
        ),
        (
            "POST /loadmanager/v1/goals",
            "/loadmanager/wishes/goals/1-g3",
            None,
            None,
            "forgot the goal 1-g3, which had ended or was not approved: no more than 50 are kept",
        ),
        (
            "POST /loadmanager/v1/goals/1-g1/approve",
            "/loadmanager/wishes/goals/1-g1",
            '{"state":"proposed"}',
            '{"state":"approved"}',
            "approved the goal 1-g1",
        ),
        (
            "POST /admin/v2/brokers/shutdown?maxConcurrentUnloadPerSec=7",
            None,
            None,
            None,
            "ordered a broker to stop",
        ),
        (
            "DELETE /loadmanager/v1/members/127.0.0.1%3A8081",
            "/loadmanager/members",
            None,
            None,
            "had the broker 127.0.0.1:8081 forgotten, which had left",
        ),
        (
            "POST /loadmanager/v1/merges",
            None,
            None,
            '{"namespace":"a/b"}',
            'ordered a merge of bundles: namespace "a/b"',
        ),
        (
            "DELETE /admin/v2/resource-quotas/a/b/0x00000000_0x80000000",
            None,
            None,
            None,
            "removed the resource quota of a/b/0x00000000_0x80000000",
        ),
        (
            "POST /admin/v2/resource-quotas",
            None,
            None,
            None,
            "set the resource quota of all other bundles",
        ),
        (
            "POST /loadmanager/v1/roles/a%20b/disconnect",
            None,
            None,
            None,
            "ended the connections of the role a b",
        ),
        (
            "PUT /loadmanager/v1/refused-tokens/3f%2F.0",
            "/loadmanager/refused/tokens",
            '{"ended":{"since":1,"until":2,"note":""}}',
            '{"3f/.0":{"since":1,"until":1700000000000,"note":"in a chat"}}',
            "refused the token 3f/.0 until 2023-11-14 22:13:20Z: in a chat",
        ),
        (
            "PUT /loadmanager/v1/refused-tokens/3f",
            "/loadmanager/refused/tokens",
            "{}",
            '{"3f":{"since":1,"until":null,"note":""}}',
            "refused the token 3f",
        ),
        (
            "DELETE /loadmanager/v1/refused-tokens/3f",
            "/loadmanager/refused/tokens",
            '{"3f":{"since":1,"until":null,"note":""}}',
            "{}",
            "allowed the token 3f again",
        ),
        ("PUT /admin/v2/tenants/shop", "/admin/policies/shop", None, "{}", "made the tenant shop"),
        (
            "POST /admin/v2/namespaces/shop/orders/permissions/app",
            POLICIES,
            None,
            '{"auth":{"app":["produce"]}}',
            'granted permissions on shop/orders to app: app ["produce"]',
        ),
        (
            "POST /admin/v2/brokers/configuration/someKey/3",
            "/admin/configuration",
            None,
            '{"someKey":"3"}',
            "set someKey to 3 (was not set)",
        ),
        (
            "PUT /loadmanager/v1/cordons/b1:8080",
            "/loadmanager/wishes/cordons/b1%3A8080",
            None,
            '{"sinceMs":1}',
            "cordoned b1:8080",
        ),
        (
            "PUT /loadmanager/v1/cordons/b1:8080",
            "/loadmanager/wishes/cordons/b1%3A8080",
            "{}",
            '{"drain":true}',
            "cordoned b1:8080, to be drained",
        ),
        (
            "POST /loadmanager/v1/moves",
            "/loadmanager/wishes/pins/shop%2Forders%2F0x00000000_0x80000000",
            None,
            '{"broker":"b2:8080","untilMs":1700000000000,"note":"hot","by":"me"}',
            "pinned shop/orders/0x00000000_0x80000000 to b2:8080 until 2023-11-14 22:13:20Z: hot",
        ),
        (
            "DELETE /x",
            "/loadmanager/wishes/pins/shop%2Forders%2F0x00000000_0x80000000",
            "{}",
            None,
            "unpinned shop/orders/0x00000000_0x80000000",
        ),
        (
            "PUT /loadmanager/v1/moves/pause",
            "/loadmanager/wishes/pause",
            None,
            '{"untilMs":1700000000000,"note":"night","by":"me","sinceMs":1}',
            "paused the moves until 2023-11-14 22:13:20Z: night",
        ),
        (
            "PUT /loadmanager/v1/moves/pause",
            "/loadmanager/wishes/pause",
            '{"untilMs":1600000000000}',
            '{"untilMs":1700000000000,"note":""}',
            "paused the moves until 2023-11-14 22:13:20Z (were paused until 2020-09-13 12:26:40Z)",
        ),
        (
            "DELETE /loadmanager/v1/moves/pause",
            "/loadmanager/wishes/pause",
            '{"untilMs":1700000000000,"note":"night"}',
            None,
            "let the moves go on (were paused until 2023-11-14 22:13:20Z: night)",
        ),
        (
            "DELETE /loadmanager/v1/cordons/b1:8080",
            "/loadmanager/wishes/goals/1-g1",
            '{"state":"approved","ended":null}',
            '{"state":"ended","endedMs":2,"ended":{"code":"Reached","text":"it is reached"}}',
            "ended the goal 1-g1, the drain of b1:8080, as its cordon ended: it is reached",
        ),
        (
            "PUT /loadmanager/v1/cordons/b1:8080?drain=true",
            "/loadmanager/wishes/goals/1-g1",
            '{"note":""}',
            '{"note":"x"}',
            "changed the goal 1-g1, the drain of b1:8080",
        ),
        (
            "DELETE /loadmanager/v1/cordons/b1:8080",
            "/loadmanager/wishes/cordons/b1%3A8080",
            "{}",
            None,
            "uncordoned b1:8080",
        ),
        ("DELETE /loadmanager/v1/cordons/b1:8080", None, None, None, "uncordoned b1:8080"),
        ("DELETE /loadmanager/v1/pins/a/b/0x0_0x1", None, None, None, "unpinned a/b/0x0_0x1"),
        (
            "PUT /admin/v2/namespaces/shop/orders/0x00000000_0x80000000/unload",
            None,
            None,
            None,
            "unloaded the bundle shop/orders/0x00000000_0x80000000",
        ),
        (
            "PUT /admin/v2/persistent/shop/orders/plain/unload?authoritative=true",
            None,
            None,
            None,
            "unloaded the topic persistent://shop/orders/plain",
        ),
        (
            "POST /admin/v2/persistent/shop/orders/big/partitions",
            "/managed-ledgers/shop/orders/persistent/big-partition-7",
            None,
            "{}",
            "made the topic persistent://shop/orders/big-partition-7",
        ),
        (
            "DELETE /admin/v2/persistent/shop/orders/big/partitions",
            "/managed-ledgers/shop/orders/persistent/a%20b-partition-7",
            "{}",
            None,
            "deleted the topic persistent://shop/orders/a b-partition-7",
        ),
        (
            "PUT /admin/v2/persistent/shop/orders/big/partitions",
            "/admin/partitioned-topics/shop/orders/persistent/big",
            None,
            '{"partitions":4}',
            "made the topic persistent://shop/orders/big of 4 partitions",
        ),
        (
            "POST /admin/v2/persistent/shop/orders/big/partitions",
            "/admin/partitioned-topics/shop/orders/persistent/big",
            '{"partitions":4}',
            '{"partitions":8}',
            "set the partitions of persistent://shop/orders/big to 8 (were 4)",
        ),
        (
            "DELETE /admin/v2/persistent/shop/orders/big/partitions",
            "/admin/partitioned-topics/shop/orders/persistent/big",
            '{"partitions":8}',
            None,
            "deleted the topic persistent://shop/orders/big of 8 partitions",
        ),
        (
            "POST /admin/v2/clusters/c/namespaceIsolationPolicies/iso1",
            "/admin/clusters/c/namespaceIsolationPolicies",
            None,
            '{"iso1":{"namespaces":["shop/.*"]}}',
            'set the isolation policy iso1 of the cluster c: namespaces ["shop/.*"]',
        ),
        (
            "DELETE /admin/v2/clusters/c/namespaceIsolationPolicies/iso1",
            "/admin/clusters/c/namespaceIsolationPolicies",
            '{"iso1":{"namespaces":["shop/.*"]}}',
            "{}",
            'deleted the isolation policy iso1 of the cluster c, which had: namespaces ["shop/.*"]',
        ),
        (
            "POST /admin/v2/clusters/c/failureDomains/d1",
            "/admin/clusters/c/failureDomain/d1",
            None,
            '{"brokers":["b1:8080"]}',
            'set the failure domain d1 of the cluster c: brokers ["b1:8080"]',
        ),
        (
            "POST /admin/v2/namespaces/shop/orders/antiAffinity",
            "/admin/local-policies/shop/orders",
            '{"namespaceAntiAffinityGroup":null}',
            '{"namespaceAntiAffinityGroup":"x"}',
            'set antiAffinity of shop/orders: namespaceAntiAffinityGroup "x"',
        ),
        (
            "POST /loadmanager/v1/moves",
            None,
            None,
            '{"bundle":"shop/orders/0x00000000_0x40000000","destination":"b2:8080","note":"now"}',
            "ordered the move of shop/orders/0x00000000_0x40000000 to b2:8080: now",
        ),
        ("DELETE /loadmanager/v1/moves/3-m1", None, None, None, "cancelled the move 3-m1"),
        ("SUBSCRIBE persistent://a/b/c", "/x", None, "{}", "opened persistent://a/b/c to read it"),
        ("PATCH /elsewhere", None, None, '{"a":1', 'PATCH /elsewhere: {"a":1'),
        ("cordons itself", None, None, None, "cordons itself"),
    ],
)
def test_words(
    what: str, path: str | None, before: str | None, after: str | None, words: str
) -> None:
    """What is not known by its path is said as it was asked for."""
    assert in_words(what, path, before, after) == words


def test_documents_that_are_too_deep() -> None:
    """Are shown as they are; whatever is written, its record is made."""
    for depth in range(900, 1_100):
        deep = '{"a":' * depth + "1" + "}" * depth
        words = in_words("POST /admin/v2/namespaces/a/b/publishRate", POLICIES, None, deep)
        assert words.startswith("set publishRate of a/b: a 1") or '{"a":{"a"' in words


@given(st.text(), st.none() | st.text(), st.none() | st.text(), st.none() | st.text())
def test_whatever_is_recorded_has_words(
    what: str, path: str | None, before: str | None, after: str | None
) -> None:
    """Of a bounded length beside what was asked for."""
    words = in_words(what, path, before, after)
    assert len(words) <= len(what) + VALUES_MAX + 60
