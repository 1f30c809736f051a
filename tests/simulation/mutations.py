"""Bugs that the project once had or nearly had, as edits of the source. The simulation finds each,
or a test that the bug names.

The text of an edit must occur exactly once in the source, so that the list cannot become outdated.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

ROOT = Path(__file__).resolve().parents[2]
OWNERSHIP = "member/ownership/ownership.py"
SPLIT = "member/ownership/replacing.py"
REPLACING = "member/ownership/replacing.py"
LOCKS = "member/ownership/locks.py"
ELECTION = "kit/metadata/election.py"
BUNDLES = "broker/protocol/hosted_bundles.py"
SESSION_KEEPER = "member/session_keeper.py"
UNUSED_PLUGINS = ("cacheprovider", "schemathesis", "pytest_cov")
"""Plugins of pytest that the tests of mutations have no need of."""


@dataclass(frozen=True, slots=True)
class Edit:
    """`before`, lines at some depth, becomes `after` in a file of the package."""

    file: str
    depth: int
    before: str
    after: str = ""

    def apply(self, package: Path) -> None:
        """Change the file. Raises `ValueError` unless the text is there once."""
        path = package / self.file
        source, before = path.read_text(), self._text(self.before)
        if source.count(before) != 1:
            raise ValueError(f"{self.file} has {source.count(before)} times:\n{before}")
        path.write_text(source.replace(before, self._text(self.after)))

    def _text(self, lines: str) -> str:
        return (
            indent(dedent(lines).strip("\n"), "    " * self.depth) + "\n" if lines.strip() else ""
        )


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug."""

    name: str
    edits: tuple[Edit, ...]
    found_in: str = "modular"
    """Where it is looked for: under which load manager, with stored topics (modular), or with the
    storage alone.
    """
    kinds: tuple[str, ...] = ()
    """The kinds of events that it is looked for with; all of them if empty."""
    test: str = ""
    """The test that finds it, where seeds do not: what is not simulated, such as the store on a
    real ZooKeeper, or takes a moment that seeds hardly hit.
    """


def _one(
    name: str,
    file: str,
    depth: int,
    before: str,
    after: str = "",
    *,
    kinds: tuple[str, ...] = (),
) -> Mutation:
    return Mutation(name, (Edit(file, depth, before, after),), kinds=kinds)


def _stored(name: str, file: str, depth: int, before: str, after: str) -> Mutation:
    return Mutation(name, (Edit(file, depth, before, after),), "stored")


def _storage(name: str, file: str, depth: int, before: str, after: str = "") -> Mutation:
    return Mutation(name, (Edit(file, depth, before, after),), "storage")


def _in_test(name: str, file: str, depth: int, before: str, after: str, test: str) -> Mutation:
    return Mutation(name, (Edit(file, depth, before, after),), test=test)


def _extensible(
    name: str, file: str, depth: int, before: str, after: str, found_in: str = "extensible"
) -> Mutation:
    return Mutation(name, (Edit(file, depth, before, after),), found_in)


UNCONTAINED = Edit(
    "kit/tasks.py",
    2,
    """
    except Exception as error:
        self.failed(name, error)
    """,
    """
    except OperationalError as error:
        self.failed(name, error)
    """,
)

CLOSES_ANY_LIFE = Edit(
    BUNDLES,
    2,
    '''
    """Tell the clients of a bundle and forget its topics."""
    opened = self.serving.open_bundles.get(bundle)
    if opened is None or opened.life != life:
        return 0
    ''',
    '''
    """Tell the clients of a bundle and forget its topics."""
    opened = self.serving.open_bundles.get(bundle)
    if opened is None:
        return 0
    life = opened.life
    ''',
)

MUTATIONS = (
    _one(
        "a bundle is served before the host opened it, and whether it could or not",
        OWNERSHIP,
        2,
        "await self._open(life, reason)",
        """
        self._lives.become(life, BundleState.OWNED, reason)
        await self._hosting.open_bundle(life.bundle, life.token)
        """,
    ),
    _one(
        "an opening that fails keeps the lock",
        OWNERSHIP,
        2,
        """
        if not life.over:
            self._hosting.fence_bundle(life.bundle, life.token)
            self._lives.become(life, BundleState.RELEASING, f"not opened: {text}")
            await self._give_back(life)
            self._lives.end(life, "not opened")
        await self._close
        """.rstrip()
        + "(life, None, CLOSE_TIMEOUT_S)",
        "await asyncio.sleep(0)",
    ),
    Mutation(
        "a release whose life is over closes the next one",
        (
            Edit(
                OWNERSHIP,
                2,
                """
                if life.over:
                    return None  # the session was lost: everything was fenced and closed
                """,
            ),
            CLOSES_ANY_LIFE,
        ),
        kinds=("slow_host", "isolate", "unload"),
    ),
    Mutation(
        "an opening whose life is over closes the next one",
        (CLOSES_ANY_LIFE,),
        kinds=("slow_host", "delete_node", "unload"),
    ),
    Mutation(
        "nobody looks at the lease",
        (
            Edit(
                SESSION_KEEPER,
                3,
                """
                if not self._fenced:
                    self.fence_unproven()
                """,
            ),
            Edit(
                "broker/protocol/server_state.py",
                2,
                "if self.directory.lease.held(now_s):",
                "if True:",
            ),
        ),
    ),
    _one(
        "a deleted lock is not noticed",
        OWNERSHIP,
        2,
        "if change.kind is ChangeKind.CREATED or bundle is None:",
        "if True:",
    ),
    _one(
        "locks are not verified after a reconnect",
        OWNERSHIP,
        2,
        "self._spawn_verify(self._lives.all())",
        kinds=("drop", "flap", "delete_node", "isolate"),
    ),
    _one(
        "a lock is deleted in whatever session",
        LOCKS,
        4,
        "await self._base.store.commit([in_session(session_id), Delete(paths.lock(bundle))])",
        "await self._base.store.commit([Delete(paths.lock(bundle))])",
        kinds=("isolate", "unload_namespace", "unload"),
    ),
    Mutation(
        "the second try to give a lock back deletes a later life's",
        (Edit(LOCKS, 2, "if not again or await self.holds(bundle, token):", "if True:"),),
        test="member/test_ownership.py::"
        "test_a_second_try_to_release_deletes_no_lock_of_another_broker",
    ),
    Mutation(
        "a lease that counts from the answer of a heartbeat",
        (
            Edit(
                "kit/zookeeper/heartbeat.py",
                3,
                "self.lease.prove(proven_s, timeout_s * LEASE_FRACTION)",
                "self.lease.prove(self._answered_s, timeout_s * LEASE_FRACTION)",
            ),
        ),
        test="kit/zookeeper/test_heartbeat.py::"
        "test_the_lease_counts_from_the_sending_of_a_heartbeat",
    ),
    Mutation(
        "a heartbeat after a pause proves what the leader has not heard of",
        (
            Edit(
                "kit/zookeeper/heartbeat.py",
                3,
                "proven_s = min(sent_s, max(known_s) + timeout_s / HEARTBEATS_PER_TIMEOUT)",
                "proven_s = sent_s",
            ),
        ),
        test="kit/zookeeper/test_lease_after_pause.py",
    ),
    _one(
        "a lock is taken whatever the boundaries are",
        LOCKS,
        3,
        "return await self._base.store.commit([boundaries, *no_record, self.creation(bundle)])",
        "return await self._base.store.commit([*no_record, self.creation(bundle)])",
        kinds=("dynamic", "split", "unload"),
    ),
    _one(
        "a lock of an earlier session of this broker counts as taken",
        LOCKS,
        2,
        """
        if node.ephemeral_owner not in (0, self._base.store.session_id):
            return None
        """,
        """
        if node.value != _lock_value(self._base.me):
            return None
        """,
    ),
    Mutation(
        "a split whose answer was lost counts as not done",
        (
            Edit(REPLACING, 4, "token = await self._outcome(lives, new)", "token = None"),
            Edit(
                OWNERSHIP,
                2,
                "self._spawn_verify(self._lives.all())",
            ),
            Edit(
                SPLIT,
                3,
                """
                self._lives.become(life, BundleState.OWNED, "not split")
                self._verify([life])
                """,
                'self._lives.become(life, BundleState.OWNED, "not split")',
            ),
        ),
        kinds=("split", "lose_answer", "drop"),
    ),
    _one(
        "the lease lasts longer than the session",
        "kit/metadata/lease.py",
        2,
        "self.valid_until_s = max(self.valid_until_s, sent_at_s + session_timeout_s)",
        "self.valid_until_s = max(self.valid_until_s, sent_at_s + 2 * session_timeout_s)",
    ),
    _one(
        "a registration that fails is not tried again",
        SESSION_KEEPER,
        3,
        'if await retrying(self._register, "register", max_s=REGISTER_RETRY_S):',
        "if await self._register():",
    ),
    Mutation(
        "nobody registers in a new session, or when the registration is gone",
        (
            Edit(
                SESSION_KEEPER,
                2,
                """
                \"\"\"Make `keep_registered` check the registration.\"\"\"
                self._reconnected.set()
                """,
                """
                \"\"\"Make `keep_registered` check the registration.\"\"\"
                """,
            ),
            Edit("member/reporter.py", 3, "await self.register()"),
        ),
    ),
    _one(
        "the work of a term goes on when the term is over",
        "member/leading/leadership.py",
        3,
        """
        self._leading.end()
        scope.cancel()
        """,
        "self._leading.end()",
    ),
    _one(
        "brokers obey leaders that were deposed",
        "leader/present_leader.py",
        2,
        "if epoch is not None and epoch < self.epoch:",
        "if epoch is not None and epoch < 0:",
        kinds=("lag", "expire", "delete_node"),
    ),
    Mutation(
        "nonsense in the leader's node keeps everybody from leading",
        (
            Edit(
                ELECTION,
                3,
                """
                with self._corrupt.left_out("leader", self.path):
                    leader = _leader_of(node, self.path)
                """,
                "leader = _leader_of(node, self.path)",
            ),
            Edit(
                "kit/tasks.py",
                2,
                "except on as error:",
                "except OperationalError as error:",
            ),
        ),
    ),
    Mutation(
        "a step that fails ends the broker, and a strategy that nobody knows reaches the leader",
        (
            UNCONTAINED,
            Edit(
                "engine/strategies/registry.py",
                1,
                """
                shedder(shedder_name)
                rule = placement(placement_name)
                """,
                "rule = placement(placement_name)",
            ),
        ),
    ),
    Mutation(
        "a document that is not UTF-8 ends the broker",
        (
            Edit(
                "kit/metadata/documents.py",
                1,
                "except (BadInputError, ValueError, RecursionError) as error:",
                "except BadInputError as error:",
            ),
            Edit(
                "kit/metadata/watching.py",
                2,
                """
                except OperationalError:
                    raise
                except Exception as error:
                """,
                """
                except OperationalError:
                    raise
                except ArithmeticError as error:
                """,
            ),
        ),
    ),
    Mutation(
        "a sensor that fails ends the broker",
        (UNCONTAINED,),
    ),
    _one(
        "a node that no session holds counts as a broker",
        "leader/brokers.py",
        2,
        """
        if node.ephemeral_owner == 0:
            self._forget(broker_id)
        """,
        """
        if node.ephemeral_owner < 0:
            self._forget(broker_id)
        """,
        kinds=("garbage", "crash"),
    ),
    _one(
        "a namespace is deleted while its bundles can be acquired",
        "broker/topics/deleting.py",
        2,
        "await self.cluster.namespaces.mark_deleted(namespace)",
    ),
    _extensible(
        "a bundle is taken from a session that lives",
        "kit/metadata/sessions.py",
        1,
        "return absent(paths.session(session_id))",
        "return []",
    ),
    _extensible(
        "a state record is changed whatever its version",
        "member/ownership/state_cache.py",
        3,
        "self.operations.append(Put(path, value, self.version))",
        "self.operations.append(Put(path, value))",
    ),
    _extensible(
        "an owner does not look whether its record is still its own",
        "member/record_orders.py",
        3,
        "self._ownership.verify(bundle)",
        "pass",
    ),
    _extensible(
        "the locks of modular brokers do not count",
        "member/ownership/state_records.py",
        2,
        "conditions = absent(paths.lock(bundle))",
        "conditions: list[Operation] = []",
        "changing",
    ),
    _extensible(
        "state records do not count for modular brokers",
        "member/ownership/locks.py",
        3,
        "return absent(paths.UNIT_STATES)",
        "return []",
        "changing",
    ),
    _stored(
        "messages are not synced before their receipts",
        "broker/storage/writers.py",
        3,
        """
        self._disk.write(journal.path, journal.size, data)
        self._disk.sync(journal.path)
        """,
        """
        self._disk.write(journal.path, journal.size, data)
        """,
    ),
    _stored(
        "receipts need no look at the marks of later openings",
        "broker/storage/log_files.py",
        2,
        "return self._ended(runs) | spoilt, {} if self._syncs() else touched",
        "return spoilt, {} if self._syncs() else touched",
    ),
    _stored(
        "non-persistent topics go on without the lease",
        "broker/protocol/hosted_bundles.py",
        3,
        "if hosted.bundle not in proven or hosted.stored is None:",
        "if hosted.bundle not in proven:",
    ),
    _stored(
        "a topic is opened though the lease has run out meanwhile",
        "broker/protocol/hosted_topics.py",
        2,
        "leased = state.directory.lease.held(state.clock.monotonic_s())",
        "leased = True",
    ),
    _stored(
        "receipts are sent before messages are stored",
        "broker/protocol/committing.py",
        2,
        "self._due[topic] = None",
        """
        self._due[topic] = None
        topic.committed(topic.log.next_id, 0)
        """,
    ),
    _in_test(
        "what is fenced while it is opened is served until the next turn",
        "member/hooks.py",
        3,
        "if self._opening[key]:",
        "if False:",
        "member/test_hooks.py::test_what_is_fenced_while_it_is_opened_is_not_served_for_one_turn",
    ),
    _in_test(
        "a failed commit is brought to its segments while its journal may lose its name",
        "broker/storage/writers.py",
        2,
        "if raw and not journal.size:",
        "if False:",
        "broker/storage/test_failed_syncs.py::"
        "test_a_failed_commit_is_not_brought_while_its_journal_may_lose_its_name",
    ),
    _storage(
        "an opening believes what only the page cache has",
        "broker/storage/earlier_runs.py",
        2,
        "return self._disk.read_stored(path, size)",
        "return self._disk.read(path, 0, size)",
    ),
    _in_test(
        "what is written while an opening syncs counts as durable",
        "broker/storage/earlier_runs.py",
        2,
        "return self._disk.read_stored(path, size)",
        "return self._disk.read_stored(path, 1 << 40)",
        "broker/storage/test_failed_syncs.py::"
        "test_what_is_written_while_an_opening_syncs_does_not_count",
    ),
    _in_test(
        "a commit that is under way while its run is ended counts as damaged",
        "broker/storage/earlier_runs.py",
        2,
        "if others and flaws.lost:",
        "if False:",
        "broker/storage/test_failed_syncs.py::"
        "test_a_commit_is_not_stored_in_part_whose_segment_another_broker_reads_first",
    ),
    _in_test(
        "a commit that failed is not brought to its segments before its journal goes",
        "broker/storage/writers.py",
        3,
        """
        for path in {place.path: None for place, _ in pieces}:
            self.doubt(path)  # others may find what the device has of it
        """,
        "",
        "broker/storage/test_failed_syncs.py::"
        "test_a_failed_commit_is_not_stored_in_part_whose_journal_another_broker_has_read",
    ),
    _in_test(
        "what is behind a segment that cannot be synced is not brought before its journal goes",
        "broker/storage/writers.py",
        4,
        """
        buffer.drop([place.path])
        self.doubt(place.path)
        """,
        "buffer.drop([place.path])",
        "broker/storage/test_failed_syncs.py::"
        "test_a_failed_commit_is_not_stored_in_part_whose_journal_another_broker_has_read",
    ),
    _in_test(
        "of two openings at once, both leave their indexes",
        "broker/storage/log_files.py",
        3,
        "self._scanned[log_id] = earlier.scanned",
        """
        self._unindexed[log_id] = earlier.scanned
        await self._leave_indexes()
        """,
        "broker/storage/test_failed_syncs.py::test_an_opening_that_is_not_recorded_leaves_no_index",
    ),
    _storage(
        "a sync that fails once is taken for durable the next time",
        "broker/storage/writers.py",
        5,
        "journal.doubtful[path] = self._doubts",
        "pass",
    ),
    _storage(
        "a failed sync of another process is not noticed",
        "broker/storage/writers.py",
        2,
        """
        for path in self.covered(ended):
            self.doubt(path)
        """,
        "pass",
    ),
    _storage(
        "a journal is deleted before its segments are synced",
        "broker/storage/writers.py",
        3,
        """
        if path not in doubtful:
            try:
                if not self.sync(path):
                    gone[path] = None
        """,
        """
        if path not in doubtful:
            try:
        """,
    ),
    _storage(
        "a journal of a process that has ended is deleted before its segments are synced",
        "broker/storage/other_writers.py",
        4,
        """
        self._disk.sync(path)
        self._disk.release(path)
        """,
        "pass",
    ),
    Mutation(
        "marks of later openings are looked for before the write, not after it",
        (
            Edit(
                "broker/storage/log_files.py",
                2,
                """
                self._own.retire(only_full=True)
                self._look()
                """,
                "self._own.retire(only_full=True)",
            ),
            Edit(
                "broker/storage/log_files.py",
                2,
                """
                self._buffer.make_room()
                spoilt = self._refuse(batch)
                """,
                """
                self._look()
                self._buffer.make_room()
                spoilt = self._refuse(batch)
                """,
            ),
        ),
        "storage",
    ),
    _storage(
        "the names of an ended run's segments are not synced",
        "broker/storage/earlier_runs.py",
        2,
        """self._disk.sync_names(path.partition("/")[0])""",
        "pass",
    ),
    _in_test(
        "a new file's name is never synced",
        "broker/storage/disk.py",
        3,
        "self._sync_folder((self._root / path).parent)",
        "pass",
        "broker/storage/test_disks.py",
    ),
    _in_test(
        "a topic is opened although a later life of its bundle has opened it",
        "broker/protocol/storing.py",
        2,
        """
        if record.life > life:
            raise ConflictError("it was opened in a later life of its bundle")
        """,
        "",
        "broker/protocol/test_stored_topics.py",
    ),
    _in_test(
        "pieces of a journal are believed without their checksums",
        "broker/storage/other_writers.py",
        3,
        "if crc32c(data) == checksum:  # else its commit failed, and its pages are gone",
        "if size:",
        "broker/storage/test_failed_syncs.py::"
        "test_a_piece_that_a_journal_has_lost_is_not_brought_again",
    ),
    _in_test(
        "what waits in memory of a log hides what others have found of it",
        "broker/storage/log_files.py",
        3,
        "if own := self._buffer.paths(log_id):  # of a run that others may have found more of",
        "if own := list[str]():",
        "broker/storage/test_failed_syncs.py::"
        "test_what_another_broker_has_found_of_a_failed_commit_can_be_read_here",
    ),
    _in_test(
        "the folder of a new topic is made where its share was mounted",
        "broker/storage/log_files.py",
        2,
        "if not runs:  # its folder may be below a share that went away meanwhile",
        "if False:",
        "broker/storage/test_vanishing_share.py",
    ),
    _in_test(
        "what a share hid for a moment is taken for deleted",
        "broker/storage/writers.py",
        1,
        "if not there or any(disk.exists(path) for path in paths):",
        "if False:",
        "broker/storage/test_vanishing_share.py",
    ),
    _in_test(
        "a member of a service owns what it cannot prove",
        "sharding/member.py",
        2,
        "if shard is None or not self._joined.is_served(bundle):",
        "if shard is None:",
        "sharding/test_member.py::test_a_key_is_not_owned_without_a_proof",
    ),
    _in_test(
        "nobody tells those who work for a shard that it is lost",
        "sharding/host.py",
        2,
        """
        for shard in (*self.shards.values(), *self._opening):
            shard.ended.set()
        """,
        "",
        "sharding/test_member.py::test_what_is_lost_is_not_saved",
    ),
    _in_test(
        "what a reader finds damaged is not read from the journal",
        "broker/storage/log_files.py",
        2,
        """
        if covered:
            await self._mend(log_id)
        """,
        "",
        "broker/storage/test_failed_syncs.py",
    ),
)


def edited(folder: Path, edits: Sequence[Edit]) -> None:
    """The package in a folder, with edits: copies of what they change, and links to all else, also
    to what is compiled.
    """
    files = {Path("loadmanager", edit.file) for edit in edits}
    above = {parent for file in files for parent in file.parents if parent != Path()}
    above.add(Path("loadmanager"))
    compiled = {f"{file.stem}.{sys.implementation.cache_tag}.pyc" for file in files}
    for package in sorted(above):
        (folder / package / "__pycache__").mkdir(parents=True)
        for source in (ROOT / package).iterdir():
            path = package / source.name
            if path in files:
                shutil.copyfile(source, folder / path)
            elif path not in above and source.name != "__pycache__":
                (folder / path).symlink_to(source)
        for source in (ROOT / package).glob("__pycache__/*.pyc"):
            if source.name not in compiled:
                (folder / package / "__pycache__" / source.name).symlink_to(source)
    for edit in edits:
        edit.apply(folder / "loadmanager")


def survived(mutation: Mutation, seeds: range, timeout_s: float = 600.0) -> int | None:
    """The number of seeds that a mutant survives before one fails; None if it survives them all.
    With a test of its own, one seed is enough.
    """
    command = [sys.executable, "-m", "simulation.hunt", str(seeds.start), str(seeds.stop)]
    command += [mutation.found_in, *mutation.kinds]
    if mutation.test:
        command = [sys.executable, "-m", "pytest", "-q"]
        command += [word for name in UNUSED_PLUGINS for word in ("-p", f"no:{name}")]
        command += ["-c", str(ROOT / "pyproject.toml"), "-o", f"pythonpath={ROOT / 'tests'}"]
        command += [str(ROOT / "tests" / mutation.test)]
    with tempfile.TemporaryDirectory() as folder:
        edited(Path(folder), mutation.edits)
        (Path(folder) / "bench").symlink_to(ROOT / "bench")  # tests use it
        paths = os.pathsep.join((folder, str(ROOT / "tests")))
        environment = {**os.environ, "PYTHONPATH": paths}
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{mutation.name}: {(done.stderr or done.stdout)[-2000:]}")
    if mutation.test:
        return 0 if done.returncode == 1 else None
    return int(done.stdout) if done.returncode == 1 else None
