"""The rules of ARCHITECTURE.md that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from architecture.product import ROOT, modules

from loadmanager import __version__
from loadmanager.broker import settings


def test_import_contracts() -> None:
    """No room imports what it may not."""
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def test_broker_conf_is_the_template() -> None:
    """config/broker.conf holds exactly every key that is honoured, with its default (`make
    broker-conf` writes it).
    """
    assert (ROOT / "config" / "broker.conf").read_text() == settings.KEYS.template()


def test_broker_conf_parses_to_the_defaults() -> None:
    """A broker that starts from config/broker.conf has the defaults."""
    loaded = settings.KEYS.load(ROOT / "config" / "broker.conf")
    assert loaded.by_leaf == settings.KEYS.load().by_leaf
    assert loaded.unknown == ()


def test_what_decides_has_no_coroutines() -> None:
    """It decides; it never waits."""
    pure = ("engine/", "limits/", "broker/messaging/", "broker/wire/")
    for path, tree in modules().items():
        found = [
            node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)
        ]
        assert not (found and path.startswith(pure)), path


def test_the_command_line_converts_in_one_place() -> None:
    """Its threads ask several brokers at once; `kit.conversion` says why they may not convert."""
    for path, tree in modules().items():
        if path.startswith("cli/"):
            for node in ast.walk(tree):
                direct = isinstance(node, ast.Attribute) and ast.unparse(node) == "msgspec.convert"
                assert not direct, f"{path} converts without kit.conversion"


STARTERS = {
    "as_completed",
    "call_at",
    "call_later",
    "create_task",
    "ensure_future",
    "gather",
    "run_coroutine_threadsafe",
    "TaskGroup",
    "wait_for",
}
"""Calls that start a task or a timer. Only kit/tasks.py may use them, which names and
supervises what it starts.
"""
STARTS = {
    ("kit/tasks.py", "TaskGroup"): "here every task is made",
    ("kit/tasks.py", "create_task"): "here every task is made",
    ("kit/http/connections.py", "call_later"): "hangs up, which cannot fail",
    ("kit/http/patience.py", "call_later"): "ends a wait, which cannot fail",
    ("kit/metadata/memory.py", "call_later"): "heartbeats in memory, where nothing can fail",
    ("broker/protocol/dispatcher.py", "call_later"): "a topic that fails costs its clients only",
    ("broker/protocol/resumer.py", "call_later"): "set again whatever raises",
    ("broker/protocol/turns.py", "call_later"): "a connection that fails is told of",
    ("kit/metrics/page.py", "call_at"): "forgets a page, which cannot fail",
    ("kit/tasks.py", "gather"): "waits for both, and raises what the first one raised",
    ("sharding/limiter.py", "call_later"): "lets callers pass, which cannot fail",
    ("testing/store_contract.py", "gather"): "a test of writers at once, which raises their errors",
    ("testing/cluster.py", "call_later"): "ends the session of a member that a test has killed",
    ("nightly/job.py", "gather"): "another gather: that of the plots",
}


def test_nothing_runs_unsupervised() -> None:
    """Tasks and timers are started only where their failures are handled."""
    found = set()
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
                found.update((name, alias.name) for alias in node.names if alias.name in STARTERS)
            elif isinstance(node, ast.Attribute) and node.attr in STARTERS:
                found.add((name, node.attr))
    assert found == STARTS.keys()


PUBLIC_METHODS_MAX = 12
MANY_METHODS = {
    "broker/admin/brokers.py:BrokerRoutes": 18,  # one method a route of /brokers
    "broker/admin/namespaces.py:NamespaceRoutes": 18,  # one method a route of a namespace
    "broker/admin/routes_message_policies.py:MessagePolicyRoutes": 13,  # one method a route
    "broker/admin/routes_policies.py:PolicyRoutes": 15,  # one method a route
    "broker/admin/routes_throttling.py:ThrottlingRoutes": 14,  # one method a route
    "broker/admin/topics.py:TopicRoutes": 13,  # one method a route
    # a log is appended to, read, trimmed and looked up
    "broker/messaging/stored_log.py:StoredLog": 13,
    "broker/messaging/subscription.py:Subscription": 14,  # what clients may do with a subscription
    "broker/messaging/topic.py:Topic": 17,  # what clients may do with a topic
    "broker/ports/access.py:Access": 13,  # a question for each thing that needs a right
    "broker/ports/directory.py:Directory": 15,  # what the server asks of its member
    "broker/protocol/connection.py:Connection": 18,  # asyncio's protocol methods, and turns
    "broker/protocol/hosted_bundles.py:HostedBundles": 15,  # the calls of four ports
    "broker/storage/disk.py:DirectoryDisk": 17,  # the calls of a file system
    "broker/storage/log_files.py:LogFiles": 13,  # the calls of the port of logs
    "broker/storage/memory_disk.py:MemoryDisk": 19,  # the same, in memory
    "broker/storage/writers.py:Disk": 17,  # the port of both
    "broker/storage/writers.py:Writer": 18,  # journal and segments change together
    "broker/topics/access.py:BrokerAccess": 14,  # answers all questions of its port
    "broker/topics/directory.py:TopicDirectory": 15,  # answers all questions of its port
    "broker/topics/limits.py:Limits": 19,  # a setter and a getter for each kind of limit
    "broker/topics/topics.py:Topics": 17,  # the records of a topic, of all kinds
    "engine/load/averages.py:BundleAverages": 16,  # a column for each figure
    # an event for each thing that happens in a cluster
    "engine/load/cluster_view.py:ClusterView": 17,
    "leader/http/moves.py:MoveRoutes": 13,  # one method a route
    "leader/load_manager.py:LoadManager": 13,  # places, sheds, splits and says why
    "limits/broker.py:BrokerThrottling": 15,  # a gate for each kind of traffic
    "limits/limit.py:Limit": 16,  # a queue and two buckets that change together
    "member/ownership/claims.py:Claims": 13,  # the port of both managers' claims
    "member/ownership/locks.py:Locks": 15,  # the calls of `Claims`, with locks
    "member/namespaces.py:Namespaces": 21,  # the records of tenants and namespaces
    # the life of a bundle, in one table of transitions
    "member/ownership/ownership.py:Ownership": 16,
    # the calls of `Claims`, and the orders in records
    "member/ownership/state_records.py:StateRecords": 19,
}
"""Classes with more, how many and why. A new one is divided by idea instead; these become fewer."""


def test_classes_have_one_idea() -> None:
    """No class has more than 12 public methods, apart from those listed, which do not grow."""
    found = {}
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                many = sum(map(_is_public_method, node.body))
                if many > PUBLIC_METHODS_MAX:
                    found[f"{path}:{node.name}"] = many
    assert found == MANY_METHODS, "put a new method in a class of its own: see CONTRIBUTING.md"


ARGUMENTS_MAX = 7
MANY_ARGUMENTS = {
    "broker/admin/server.py:AdminServer": 9,  # a broker's page, its limits and who may ask
    "broker/admin/use_cases.py:UseCases": 25,  # a list: what routes may call, each by its name
    "broker/messaging/consumers.py:Consumer": 9,  # the fields of SUBSCRIBE
    "broker/protocol/storing.py:Storing": 11,  # between the server, the storage and the memory
    "broker/topics/directory.py:TopicDirectory": 9,  # answers the server for all of the member
    "broker/topics/limits.py:Limits": 9,  # between stored policies and what throttles
    "engine/load/snapshot.py:ClusterSnapshot": 21,  # a value: what a decision may look at
    "engine/load/usage_model.py:UsageModel": 14,  # a value, and what follows from it
    "engine/ownership/states.py:BundleLife": 8,  # a value, and its transitions
    "kit/http/operation.py:Query": 8,  # the fields of a parameter in OpenAPI
    "leader/decisions.py:RecentDecision": 10,  # a value: a decision and what came of it
    "member/assigning.py:Assigning": 8,  # a placement has that many inputs
    "member/leading/term.py:Leads": 8,  # a list: with what a member leads
    "member/settings.py:BrokerSettings": 30,  # keys of broker.conf
    "member/telemetry.py:BrokerTelemetry": 15,  # measures all parts of a member
    "steer/work.py:FleetWork": 15,  # a list: the parts of the daemon in a term
}
"""Classes that do something and are built from more than `ARGUMENTS_MAX` things, and why."""


def test_constructors_are_short() -> None:
    """What several objects need is passed whole (`member.base`), not argument by argument."""
    found = {}
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                count = _arguments(node)
                if count > ARGUMENTS_MAX:
                    found[f"{path}:{node.name}"] = count
    assert found == MANY_ARGUMENTS


def _arguments(kind: ast.ClassDef) -> int:
    """How many arguments the constructor of a class takes; 0 for a value without any behaviour."""
    for node in kind.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return len(node.args.args) + len(node.args.kwonlyargs) - 1
    behaves = any(map(_acts, kind.body))
    if not behaves or not any("dataclass" in ast.unparse(it) for it in kind.decorator_list):
        return 0
    return sum(map(_is_argument, kind.body))


def _acts(node: ast.stmt) -> bool:
    if isinstance(node, ast.AsyncFunctionDef):
        return True
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
        return False
    if any("property" in ast.unparse(it) for it in node.decorator_list):
        return False
    changes = (ast.Assign, ast.AugAssign, ast.Expr)
    return any("self." in ast.unparse(it) for it in ast.walk(node) if isinstance(it, changes))


def _is_argument(node: ast.stmt) -> bool:
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
        return False
    made = "" if node.value is None else ast.unparse(node.value)
    kept = node.target.id.startswith("_") or "ClassVar" in ast.unparse(node.annotation)
    return not kept and "init=False" not in made


def _is_public_method(node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    if node.name.startswith(("_", "test_")):  # nobody calls the tests of a contract
        return False
    made = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return made.isdisjoint({"property", "overload", "setter", "cached_property"})


def test_functions_stay_small() -> None:
    """No function of more than 70 lines."""
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 70, f"{path}: {node.name}"


def test_nothing_of_our_own_is_patched() -> None:
    """Tests use the fakes that ship with the package, never patches of our own code."""
    banned = ("mock" + ".patch", "monkey" + "patch.setattr", "Magic" + "Mock")
    for path in sorted((ROOT / "tests").rglob("*.py")):
        assert not [word for word in banned if word in path.read_text()], path


def test_an_sdist_holds_what_the_readme_links_to() -> None:
    """Every relative link of README.md leads to a file that MANIFEST.in includes."""
    manifest = (ROOT / "MANIFEST.in").read_text().split()
    links = re.findall(r"\]\(([^)#:]+)[^)]*\)", (ROOT / "README.md").read_text())
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
        assert Path(link).parts[0] in manifest, link


def test_the_changelog_begins_with_the_version() -> None:
    """The newest section is that of the version. What is not released has the number of no release:
    it is `.dev0` of a later one.
    """
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    numbers, dev, _ = __version__.partition(".dev")
    if headings[0] != "Unreleased":
        assert (headings[0], dev) == (__version__, "")
        return
    assert dev
    version, released = ([int(part) for part in each.split(".")] for each in (numbers, headings[1]))
    assert version > released


def test_constraints_name_no_host() -> None:
    """The constraints file pins versions and names no host."""
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or ("==" in line and "/" not in line and "@" not in line), line
