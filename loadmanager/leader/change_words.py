"""Says in words what a change of the audit log is: `set publishRate of shop/orders`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from loadmanager.engine.plans.goals import PlanLimits, bounds_of, hours_of
from loadmanager.engine.plans.order import ORDERS_MAX
from loadmanager.kit.metadata import paths
from loadmanager.kit.text import count_of

VALUES_MAX = 200
"""Characters of values that a line shows."""
_PREFIXES = ("/admin/v2/", "/admin/v3/", "/loadmanager/v1/")
_LOCAL_POLICIES = "/admin/local-policies/"
_PARTITIONED = "admin/partitioned-topics"
_TOPIC_RECORD = r"/(managed-ledgers|admin/partitioned-topics)/([^/]+/[^/]+)/([^/]+)/([^/]+)"
_CLIENTS = {"SUBSCRIBE": "opened {} to read it", "PRODUCER": "opened {} to publish to it"}
_PLACE = r"([^/]+/[^/]+)"
_TOPIC = r"((?:non-)?persistent)/([^/]+/[^/]+/[^/]+)"
_TOKEN = r"refused-tokens/([^/]+)"
_CORDON = r"cordons/([^/]+)"
_ISOLATION = r"([^/]+)/namespaceIsolationPolicies/([^/]+)"
_DOMAIN = r"([^/]+)/failureDomains/([^/]+)"
_SETTING = r"brokers/configuration/([^/]+)(?:/.*)?"
_RANGE = r"(0x[0-9a-f]{8}_0x[0-9a-f]{8})"
_FOLDERS = {
    paths.POLICIES: "the namespace",
    paths.LOCAL_POLICIES: "the bundles of",
    paths.RESOURCE_GROUPS: "the resource group",
    paths.RESOURCE_QUOTAS: "the resource quota of",
}
_WORDS: tuple[tuple[str, str, str], ...] = (
    ("PUT", r"tenants/([^/]+)", "made the tenant {}"),
    ("POST", r"tenants/([^/]+)", "changed the tenant {}"),
    ("DELETE", r"tenants/([^/]+)", "deleted the tenant {}"),
    ("PUT", rf"namespaces/{_PLACE}", "made the namespace {}"),
    ("DELETE", rf"namespaces/{_PLACE}", "deleted the namespace {}"),
    ("POST", rf"namespaces/{_PLACE}/permissions/(.+)", "granted permissions on {0} to {1}"),
    ("DELETE", rf"namespaces/{_PLACE}/permissions/(.+)", "took permissions on {0} from {1}"),
    ("PUT", rf"namespaces/{_PLACE}/{_RANGE}/unload", "unloaded the bundle {}/{}"),
    ("PUT", rf"namespaces/{_PLACE}/{_RANGE}/split", "split the bundle {}/{}"),
    ("PUT", rf"namespaces/{_PLACE}/unload", "unloaded the namespace {}"),
    ("PUT|POST", rf"namespaces/{_PLACE}/([^/]+)(?:/.*)?", "set {1} of {0}"),
    ("DELETE", rf"namespaces/{_PLACE}/([^/]+)(?:/.*)?", "removed {1} of {0}"),
    ("PUT", rf"{_TOPIC}/unload", "unloaded the topic {}://{}"),
    ("PUT", _TOPIC, "made the topic {}://{}"),
    ("DELETE", _TOPIC, "deleted the topic {}://{}"),
    ("PUT", rf"{_TOPIC}/subscription/([^/]+)", "made the subscription {2} of {0}://{1}"),
    ("DELETE", rf"{_TOPIC}/subscription/([^/]+)", "deleted the subscription {2} of {0}://{1}"),
    ("POST", rf"{_TOPIC}/subscription/([^/]+)/(.+)", "asked for {3} of {2} of {0}://{1}"),
    ("POST", rf"{_TOPIC}/permissions/(.+)", "granted permissions on {0}://{1} to {2}"),
    ("DELETE", rf"{_TOPIC}/permissions/(.+)", "took permissions on {0}://{1} from {2}"),
    ("PUT|POST", rf"{_TOPIC}/([^/]+)(?:/.*)?", "set {2} of {0}://{1}"),
    ("DELETE", rf"{_TOPIC}/([^/]+)(?:/.*)?", "removed {2} of {0}://{1}"),
    ("PUT|POST", rf"clusters/{_ISOLATION}", "set the isolation policy {1} of the cluster {0}"),
    ("DELETE", rf"clusters/{_ISOLATION}", "deleted the isolation policy {1} of the cluster {0}"),
    ("PUT|POST", rf"clusters/{_DOMAIN}", "set the failure domain {1} of the cluster {0}"),
    ("DELETE", rf"clusters/{_DOMAIN}", "deleted the failure domain {1} of the cluster {0}"),
    ("PUT|POST", r"resourcegroups/([^/]+)", "set the resource group {}"),
    ("DELETE", r"resourcegroups/([^/]+)", "deleted the resource group {}"),
    ("POST", r"brokers/configuration/([^/]+)/(.*)", "set {} to {}"),
    ("DELETE", r"brokers/configuration/([^/]+)", "gave {} back to broker.conf"),
    ("POST", r"brokers/shutdown", "ordered a broker to stop"),
    ("DELETE", r"members/([^/]+)", "had the broker {} forgotten, which had left"),
    ("POST", r"merges", "ordered a merge of bundles"),
    ("POST", rf"resource-quotas/{_PLACE}/{_RANGE}", "set the resource quota of {}/{}"),
    ("DELETE", rf"resource-quotas/{_PLACE}/{_RANGE}", "removed the resource quota of {}/{}"),
    ("POST", r"resource-quotas", "set the resource quota of all other bundles"),
    ("PUT", _CORDON, "cordoned {}"),
    ("DELETE", _CORDON, "uncordoned {}"),
    ("DELETE", r"pins/(.+)", "unpinned {}"),
    ("PUT", r"moves/pause", "paused the moves"),
    ("DELETE", r"moves/pause", "let the moves go on"),
    ("POST", r"moves", "ordered moves"),
    ("DELETE", r"moves", "cancelled the moves that waited"),
    ("DELETE", r"moves/(.+)", "cancelled the move {}"),
    ("POST", r"goals", "ordered a goal"),
    ("POST", r"goals/([^/]+)/approve", "approved the goal {}"),
    ("POST", r"goals/([^/]+)/stop", "stopped the goal {}"),
    ("POST", r"plans/([^/]+)/execute", "carried out the plan {}"),
    ("POST", r"undo", "undid changes"),
    ("POST", r"roles/([^/]+)/disconnect", "ended the connections of the role {}"),
    ("PUT", _TOKEN, "refused the token {}"),
    ("DELETE", _TOKEN, "allowed the token {} again"),
)


def in_words(what: str, path: str | None, before: str | None, after: str | None) -> str:
    """What was done, and the values that became others. See `records.AuditedChange`."""
    method, _, target = what.partition(" ")
    if method in _CLIENTS:
        return _CLIENTS[method].format(target)
    path = path or ""
    if said := wish_words(path, before, after) or _topic(path, before, after):
        return said
    done = _done(method, target)
    if _without_prefix(target) == "undo":
        done += _undone_of(path)
    if (own := _of_its_own(done, _without_prefix(target), path, before, after)) is not None:
        return own
    if done.startswith("deleted ") and not _leaves(after) and _leaves(before):
        done, before, after = f"{done}, which had", None, before
    values = new_values(before, after)
    return f"{done}: {values}" if values else done


def new_values(before: str | None, after: str | None) -> str:
    """The values of a document that became others; empty if none did."""
    values = ", ".join(_values(before, after))
    return values if len(values) <= VALUES_MAX else f"{values[:VALUES_MAX]}…"


def _undone_of(path: str) -> str:
    """Of what an undo put the document back."""
    if path == paths.DYNAMIC_CONFIGURATION:
        return " of settings"
    if (topic := paths.topic_of_policies(path)) is not None:
        return f" of {topic}"
    for folder, kind in _FOLDERS.items():
        if path.startswith(f"{folder}/"):
            return f" of {kind} {unquote(path[len(folder) + 1 :])}"
    return f" of {unquote(path)}" if path else ""


def _of_its_own(
    done: str, asked: str, path: str, before: str | None, after: str | None
) -> str | None:
    """The words for documents of which not the values are told; None: it is another one."""
    if path.startswith(f"{paths.GOALS}/"):
        if after is None:
            goal = paths.decode(paths.last(path))
            had = "which had ended or was not approved"
            return f"forgot the goal {goal}, {had}: no more than {ORDERS_MAX} are kept"
        if before is None:
            return _ordered(path, after)
        drained = re.fullmatch(_CORDON, asked)
        return _drain_order(path, unquote(drained[1]), after) if drained else done
    if path.startswith(f"{paths.LIMIT_ENDS}/"):
        until = _time(after, "untilMs")
        return f"{done}: it ends at {until}" if until else f"{done}: its end is no longer set"
    if path == paths.REFUSED_TOKENS and (token := re.fullmatch(_TOKEN, asked)):
        return done + _refusal(unquote(token[1]), after)
    if path.startswith(_LOCAL_POLICIES) and not asked.endswith("/antiAffinity"):
        return f"{done}: its bundles"
    if path == paths.DYNAMIC_CONFIGURATION and asked != "undo":
        return done + _setting_was(asked, before)
    if asked.startswith(("brokers/", "members/")):  # the value is said
        return done
    if asked == "moves" and (order := _leaves(after)):
        return _move(order) + _note(after, "note")
    return None


def _setting_was(asked: str, before: str | None) -> str:
    """The value that a setting had for all brokers; empty: it is not known."""
    key, was = re.fullmatch(_SETTING, asked), _leaves(before)
    if key is None or was is None:
        return ""
    return f" (was {_text(was[unquote(key[1])])})" if unquote(key[1]) in was else " (was not set)"


def _text(value: str) -> str:
    """A value of a document, without the quotes of a text."""
    return str(json.loads(value)) if value.startswith('"') else value


def _topic(path: str, before: str | None, after: str | None) -> str:
    """What became of a topic's record; empty: it is another document, or has merely changed."""
    match = re.fullmatch(_TOPIC_RECORD, path)
    if match is None or (before is not None and after is not None and match[1] != _PARTITIONED):
        return ""
    namespace, domain, name = match[2], match[3], paths.decode(match[4])
    topic = f"{domain}://{namespace}/{name}"
    done = "made" if before is None else "deleted"
    if match[1] != _PARTITIONED:
        return f"{done} the topic {topic}"
    was, now = ((_leaves(text) or {}).get("partitions", "?") for text in (before, after))
    if before is not None and after is not None:
        return f"set the partitions of {topic} to {now} (were {was})"
    return f"{done} the topic {topic} of {now if before is None else was} partitions"


def _move(order: Mapping[str, str]) -> str:
    """Which move was ordered."""
    bundle, destination = (order.get(name, '""').strip('"') for name in ("bundle", "destination"))
    return f"ordered the move of {bundle}" + (f" to {destination}" if destination else "")


def wish_words(path: str, before: str | None, after: str | None) -> str:
    """What became of a pin, a cordon or the pause; empty: it is another document."""
    of = paths.decode(paths.last(path))
    if path == paths.PAUSE:
        was = f" (were paused{pause})" if (pause := _pause(before) + _by(before)) else ""
        if after is None:
            return f"let the moves go on{was}"
        return f"paused the moves{_pause(after)}{was}"
    if path.startswith(f"{paths.PINS}/"):
        was = f" (was pinned{pin})" if (pin := _pin(before) + _by(before)) else ""
        return f"unpinned {of}{was}" if after is None else f"pinned {of}{_pin(after)}{was}"
    if path.startswith(f"{paths.CORDONS}/"):
        if after is None:
            since = _time(before, "sinceMs")
            was = f"since {since}{_note(before, 'note')}"
            return f"uncordoned {of}" + (f" (was cordoned {was})" if since else "")
        was = ""
        if before is not None and (since := _time(before, "sinceMs")):
            was = f" (was cordoned since {since}{_by(before)})"
        drains, note = (_leaves(after) or {}).get("drain"), _note(after, "note")
        if drains == "true":
            return f"cordoned {of}, to be drained{was}{note}"
        if before is None:
            return f"cordoned {of}{note}"
        return f"changed the cordon of {of}{', no drain' if drains else ''}{was}{note}"
    return ""


def _pause(text: str | None) -> str:
    """Until when moves are paused, and why."""
    until = f" until {time}" if (time := _time(text, "untilMs")) else ""
    return until + _note(text, "note")


def _by(text: str | None) -> str:
    """Who ordered it."""
    by = _text((_leaves(text) or {}).get("by", '""'))
    return f", by {by}" if by else ""


def _pin(text: str | None) -> str:
    """Where a bundle is pinned, and until when."""
    broker = _text((_leaves(text) or {}).get("broker", '""'))
    to = f" to {broker}" if broker else ""
    until = f" until {time}" if (time := _time(text, "untilMs")) else ""
    return to + until + _note(text, "note")


def _ordered(path: str, after: str) -> str:
    """What goal was ordered."""
    order = _leaves(after) or {}

    def of(name: str) -> str:
        return order.get(f"goal.{name}", "").strip('[]"').replace('"', "")

    aims = {
        "even": f"all brokers within {of('withinPoints')} points of the mean",
        "filled": f"{of('broker')} filled",
        "emptied": f"{of('broker')} emptied",
        "spare": "any one broker may be lost",
        "apart": f"{of('names')} apart",
    }
    aim = aims.get(of("kind"), "")
    done = "proposed" if order.get("state") == '"proposed"' else "ordered"
    text = f"{done} the goal {paths.decode(paths.last(path))}"
    return "; ".join([f"{text}: {aim}", *_limits_of_goal(after)]) if aim else text


def _limits_of_goal(after: str) -> list[str]:
    """When a goal is carried out, what it may cost at most, how many moves were planned, and its
    note.
    """
    try:
        document = msgspec.json.decode(after)
        limits = msgspec.convert(document.get("limits", {}), PlanLimits)
        moves = document.get("promise", {}).get("curve", [])[-1:]
        planned = [f"{count_of(it['moves'], 'move')} planned" for it in moves]
        note = [f"note: {text}"] if (text := document.get("note")) else []
        return [*hours_of(limits, _clock), *bounds_of(limits), *planned, *note]
    except (
        *(msgspec.MsgspecError, AttributeError, TypeError, KeyError),
        *(ValueError, OverflowError, OSError),
    ):
        return []


def _drain_order(path: str, broker: str, after: str | None) -> str:
    """What became of the goal that drains a broker, when its cordon changed."""
    goal = f"the goal {paths.decode(paths.last(path))}, the drain of {broker}"
    fields = _leaves(after) or {}
    if fields.get("state") != '"ended"':
        return f"changed {goal}"
    return f"ended {goal}, as its cordon ended" + _note(after, "ended.text")


def _refusal(token: str, after: str | None) -> str:
    """Until when a token is refused, and why; empty: it is not."""
    until = _time(after, f"{token}.until")
    return (f" until {until}" if until else "") + _note(after, f"{token}.note")


def _note(text: str | None, name: str) -> str:
    """A text of a document, as the end of a sentence; empty if it has none."""
    note = (_leaves(text) or {}).get(name, '""').strip('"')
    return f": {note}" if note else ""


def _time(text: str | None, name: str) -> str:
    """A time of a document; empty if it has none."""
    try:
        return _clock(float((_leaves(text) or {})[name]))
    except (KeyError, ValueError, OverflowError, OSError):
        return ""


def _clock(at_ms: float) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def _without_prefix(target: str) -> str:
    path = target.partition("?")[0].rstrip("/")
    for prefix in _PREFIXES:
        path = path.removeprefix(prefix)
    return path


def _done(method: str, target: str) -> str:
    path = _without_prefix(target)
    for methods, pattern, words in _WORDS:
        if method in methods.split("|") and (match := re.fullmatch(pattern, path)):
            return words.format(*map(unquote, match.groups()))
    return f"{method} {unquote(target)}".strip()


def _values(before: str | None, after: str | None) -> Iterator[str]:
    """The values of a document that became others; all of it if it is none."""
    was, now = _leaves(before), _leaves(after)
    if was is None or now is None:
        if after is not None:
            yield after
        return
    for name in [*now, *(name for name in was if name not in now)]:
        if was.get(name) == now.get(name):
            continue
        then = f" (was {was[name]})" if was.get(name, "null") != "null" else ""
        yield f"{name.rpartition('.')[2]} {now.get(name, 'not set')}{then}"


def _leaves(text: str | None) -> dict[str, str] | None:
    """Field → its value, of all fields within; None: it is no object, or was cut off."""
    try:
        document = json.loads(text or "{}")
        return dict(_of(document, "")) if isinstance(document, dict) else None
    except (ValueError, RecursionError):
        return None


def _of(document: Mapping[str, Any], within: str) -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _of(value, f"{within}{name}.")
        else:
            yield within + name, json.dumps(value)
