"""The rules about names in docs/glossary.md that a machine can check."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from architecture.product import modules

SHARED = {
    "Node": "the store's is a place in its tree; the library's is what carries items",
    "Moved": "the library answers so, and OpenAPI names the order of a move so",
}
"""Public classes of one name, and why."""


def test_public_classes_have_a_name_of_their_own() -> None:
    """No two modules define a public class of one name."""
    places = defaultdict(list)
    for path, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    shared = {name for name, paths in places.items() if len(paths) > 1}
    assert shared == SHARED.keys(), {name: places[name] for name in shared ^ SHARED.keys()}


PARTICIPLES = {"found", "held", "kept", "known", "one", "seen", "told"}
"""They say how a value came here, not what it is."""
BARE = {
    ("cli/admin/shapes.py", "held"): "a key of an answer",
    ("engine/history/records.py", "held"): "a key of stored records",
    ("engine/load/heat.py", "kept"): "a key of an answer",
    ("kit/metadata/lease.py", "held"): "a predicate: `lease.held(now_s)`",
    ("limits/stats.py", "held"): "a key of an answer",
    ("nightly/analysed_days.py", "seen"): "a key of a stored manifest",
    ("steer/documents.py", "held"): "a key of two answers",
}
"""Where one of these words is a whole name, and why."""


def test_names_say_what_things_are() -> None:
    """No variable, argument, attribute, function or class is named by a bare participle."""
    bare = {
        (path, name)
        for path, tree in modules().items()
        for name in _bound_names(tree)
        if name.strip("_").lower() in PARTICIPLES
    }
    assert bare == BARE.keys()


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
