"""Putting documents back: which ones, which fields, and why not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadmanager.kit.audit import ChangeShown, change_id, change_order, is_id_of
from loadmanager.kit.metadata import paths
from loadmanager.leader.documents.undo import UndoStep
from loadmanager.leader.undo_documents import CannotUndoError, Draft, put_back

NAMESPACE = "/admin/policies/acme/orders"
GROUP = paths.RESOURCE_GROUPS + "/gold"
Fields = dict[str, Any] | None


def a_change(path: str, before: Any, after: Any) -> ChangeShown:
    """A change; texts stand as they are."""
    before, after = (
        each if each is None or isinstance(each, str) else json.dumps(each)
        for each in (before, after)
    )
    return ChangeShown(
        ts=1,
        broker="b",
        role="boss",
        proxied=None,
        address="a",
        over="http",
        what="POST /x",
        path=path,
        before=before,
        after=after,
        note=None,
        id="c-1-100",
    )


@pytest.mark.parametrize(
    ("path", "before", "after", "now", "then"),
    [
        (NAMESPACE, {"a": 1}, {"a": 2}, {"a": 2, "b": 3}, {"a": 1, "b": 3}),
        (NAMESPACE, {}, {"a": 2}, {"a": 2, "b": 3}, {"b": 3}),
        (NAMESPACE, {"a": 1}, {}, {"b": 3}, {"a": 1, "b": 3}),
        (NAMESPACE, {"a": {"x": 1}}, {"a": None}, {"a": None}, {"a": {"x": 1}}),
        (GROUP, None, {"a": 1}, {"a": 1}, None),
        (GROUP, {"a": 1}, None, None, {"a": 1}),
        (paths.DYNAMIC_CONFIGURATION, {"k": "1"}, {"k": "2"}, {"k": "2"}, {"k": "1"}),
        (paths.TOPIC_POLICIES + "/t/n/persistent/x", None, {"a": 1}, {"a": 1}, {}),
        ("/admin/clusters/c/namespaceIsolationPolicies", {}, {"p": {}}, {"p": {}}, {}),
        ("/admin/policies/acme", {"adminRoles": []}, {"adminRoles": ["x"]}, None, "changed"),
        ("/admin/local-policies/a/b", {}, {"namespaceAntiAffinityGroup": "g"}, {}, "changed"),
        (paths.PINS + "/b", None, {"broker": "x"}, {"broker": "y"}, "changed"),
        (paths.PAUSE, None, {"untilMs": 1}, None, "changed"),
        (NAMESPACE, {"a": 1}, {"a": 2}, {"a": 3}, "changed"),
        (NAMESPACE, {"a": 1}, {}, {"a": 1}, "changed"),
        (GROUP, None, {"a": 1}, {"a": 1, "b": 2}, "changed"),
    ],
)
def test_the_fields_of_a_change_are_put_back_while_they_are_as_it_left_them(
    path: str, before: Fields, after: Fields, now: Fields, then: Fields | str
) -> None:
    """Other fields stay as they are. What somebody else changed since is refused."""
    change = a_change(path, before, after)
    if then == "changed":
        with pytest.raises(CannotUndoError, match="as this change left it") as refused:
            put_back(change, now)
        assert refused.value.changed
    else:
        assert put_back(change, now) == then
        assert isinstance(then, dict | None)
        again = a_change(path, after, then if before is None else before)
        assert put_back(again, then) == now


@pytest.mark.parametrize(
    "path",
    [
        paths.DYNAMIC_CONFIGURATION,
        paths.TOPIC_POLICIES + "/t/n/persistent/x",
        "/admin/clusters/c/namespaceIsolationPolicies",
    ],
)
def test_what_others_have_added_to_a_document_stays(path: str) -> None:
    """The change that made the document is undone in its own fields, as any later one."""
    made = a_change(path, None, {"a": "1"})
    assert put_back(made, {"a": "1", "b": "2"}) == {"b": "2"}
    assert put_back(made, {"a": "1"}) == {}
    for now in ({"a": "3", "b": "2"}, {"b": "2"}, None):
        with pytest.raises(CannotUndoError, match="as this change left it"):
            put_back(made, now)


@pytest.mark.parametrize(
    ("path", "before", "after", "why"),
    [
        (NAMESPACE, None, {"bundles": {}}, "a namespace was made: `loadmanager admin namespaces"),
        (NAMESPACE, {"bundles": {}}, None, "a namespace was deleted"),
        (NAMESPACE, {}, {"deleted": True}, "was being deleted"),
        ("/admin/policies/acme", None, {}, "a tenant was made"),
        ("/admin/policies/acme", {}, None, "`loadmanager admin tenants create` makes it again"),
        ("/admin/local-policies/a/b", {"bundles": 1}, {"bundles": 2}, "`bundles split` do that"),
        (paths.TOPIC_POLICIES + "/t/n/persistent/x", {"a": 1}, None, "its topic was deleted"),
        ("/admin/partitioned-topics/t/n/persistent/x", None, {}, "partitions"),
        ("/managed-ledgers/t/n/persistent/x", None, "{}", "a topic or a subscription"),
        ("/managed-ledgers/t/n/persistent/x/sub", "{}", None, "a topic or a subscription"),
        (paths.SCHEMAS + "/t/n/x", None, {}, "schema"),
        (paths.REFUSED_TOKENS, {}, {"x": 1}, "tokens allow"),
        (paths.GOALS + "/7-g1", None, {}, "goals stop"),
        ("/admin/clusters/c/failureDomain/d", None, {}, "not put back"),
        ("/admin/resourcegroups", None, {}, "not put back"),
        ("/admin/configurations", {}, {"a": 1}, "not put back"),
        (GROUP, {"a": 1}, {"a": 1}, "changed nothing"),
        (GROUP, None, None, "does not say what was"),
        (GROUP, {"a": 1}, '{"a": "' + "x" * 3000 + "…", "cut off"),
        (GROUP, '"text"', {}, "no JSON object"),
        (GROUP, "[" * 3000, {}, "cut off"),
        (paths.DYNAMIC_CONFIGURATION, {"k": "*****"}, {"k": "*****"}, "a secret"),
    ],
)
def test_what_is_not_put_back_says_why(path: str, before: Any, after: Any, why: str) -> None:
    """And which command does it."""
    with pytest.raises(CannotUndoError, match=why) as refused:
        put_back(a_change(path, before, after), {"a": 1})
    assert not refused.value.changed


def test_ids_of_changes() -> None:
    """Ids have the order of the changes, and tell whose they may be."""
    ids = [change_id(at, number, "b:8080") for at, number in ((35, 2), (36, 1), (36, 40))]
    orders = [change_order(id_) or (0, 0) for id_ in ids]
    assert orders == sorted(orders)
    assert change_order(ids[2]) == (36, 40)
    assert ids[2].startswith("c-10-14")
    assert all(is_id_of(id_, "b:8080") for id_ in ids)
    assert not is_id_of(ids[0], "c:8080")
    assert change_id(0, 0, "b:8080")[:5] == "c-0-0"
    for other in ("", "c-", "c-1-2", "7-12", "c-1-23-", "c-A-100", "c-1234567890-100"):
        assert change_order(other) is None


def test_a_seal_is_of_the_steps() -> None:
    """The same steps have the same seal, others another."""
    step = UndoStep(id="c-1-100", what="w", of="o", now="1", then=None)
    other = UndoStep(id="c-1-100", what="w", of="o", now="2", then=None)
    seals = [Draft(steps=steps).seal for steps in ([step], [step], [other], [step, other], [])]
    assert seals[0] == seals[1]
    assert len(set(seals)) == 4
