"""For whoever brings a store of another kind: the port that it implements, and its values.

A package with an entry point in the group `loadmanager.stores` brings it: the scheme of the URLs →
a function that takes a URL and a session timeout in seconds and returns an asynchronous context
manager over a `Store`. `loadmanager.testing.store_contract` proves it.
"""

from loadmanager.kit.errors import BadInputError, ConflictError, OperationalError
from loadmanager.kit.metadata.lease import Lease
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    SessionState,
    Store,
    StoreAwayError,
    VersionConflictError,
    check_operations,
    check_size,
)

__all__ = [
    "BadInputError",
    "Change",
    "ChangeKind",
    "Check",
    "ConflictError",
    "Create",
    "Delete",
    "Lease",
    "Node",
    "Operation",
    "OperationalError",
    "Put",
    "SessionState",
    "Store",
    "StoreAwayError",
    "VersionConflictError",
    "check_operations",
    "check_size",
]
