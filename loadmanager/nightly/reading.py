"""What Spark's Python tasks do. One reads some segments of a kind, and writes their lines, typed,
into a Parquet file, and sums of their loads into others; every line is looked at once. Another task
picks records of some names out of such a file.

Executors have Python, pyarrow and fsspec, but not this package: its functions and classes are sent
to them, and use nothing but constants of other modules.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from loadmanager.kit.history.blocks import READ_BYTES, plain_blocks
from loadmanager.kit.units import HOUR_MS

BLOCK_BYTES = 8 << 20
"""So much is parsed at once: a row group of the Parquet file."""
LINES_SINGLY = 500
"""So many are read one by one where they cannot be read at once."""
ROWS_SUMMED = 250_000
"""So many are summed up at once: of fewer, fewer have the same names and hour."""
LINE_BYTES_MAX = 1 << 20
"""Records are far shorter. A longer line is no record, and only its ends are kept."""
DAMAGED = "is cut off or damaged; what could be read was"
PROBLEM, TEXT, SEGMENT = "problem", "text", "segment"
NOT_JSON = "not JSON, a wrong type, or more than 1 MiB"
SAMPLES_MAX = 5
SAMPLE_CHARS_MAX = 300
NOT_FINITE = {"NaN", "Infinity", "-Infinity"}
SUMS = {
    "samples": "sum",
    "bytes": "sum",
    "messages": "sum",
    "connection_hours": "sum",
    "throughput_sum": "sum",
    "throughput_max": "max",
    "rate_sum": "sum",
    "rate_max": "max",
    "first_ts": "min",
    "last_ts": "max",
    "topics_max": "max",
    "backlog_max": "max",
}
"""Columns of sums, and how sums of sums are made."""
Row = dict[str, Any]
Piece = tuple[str, bytes]
"""A segment, and some of its lines, with a line feed between each two."""


@dataclass(frozen=True)
class RecordFormat:
    """What a line must be to be a record. Columns in structs are named with dots."""

    schema: pa.Schema
    required: Sequence[str]
    numbers: Sequence[tuple[str, float, float]]
    """Column, and what it may be at least and at most."""
    first_ms: int
    end_ms: int
    """`ts` is at least the former and below the latter, or the record is of another day."""
    causes: dict[str, str]
    """Ownership records of version 1 say in `reason` what later ones have fields for: reason →
    cause. Empty for other kinds.
    """


@dataclass(frozen=True)
class SegmentTask:
    """Segments that become one file."""

    kind: str
    segments: Sequence[tuple[str, str]]
    """Path and name."""
    rules: RecordFormat
    plain_bytes_max: int
    """A compressed segment that holds more is left out."""
    source: Any
    """The file systems, as fsspec makes them."""
    target: Any
    path: str
    """Where to write the lines."""
    sums: Sequence[tuple[tuple[str, str], str]]
    """The columns that sums are made for, and where to write them."""


@dataclass
class TaskOutcome:
    """What came of a task."""

    kind: str
    rows: int = 0
    put_aside: Counter[str] = field(default_factory=Counter)
    """Reason → number of lines that are no valid records."""
    samples: list[dict[str, str]] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    """Segment → why not all of it was read."""
    gone: bool = False
    """A segment does not exist any more."""
    unwritten: str | None = None
    """Why nothing could be written."""
    written: list[str] = field(default_factory=list)


class TooLargeError(Exception):
    """A segment holds more than any that a broker wrote."""


def run(task: SegmentTask) -> TaskOutcome:
    """Write the file. Once more, without it, if a segment is too large: part of it is in the file
    by then.
    """
    left_out: dict[str, str] = {}
    while True:
        outcome = TaskOutcome(task.kind, faults=dict(left_out))
        try:
            _write(task, outcome)
        except FileNotFoundError:
            outcome.gone = True
        except OSError as error:
            outcome.unwritten = str(error)
        except TooLargeError as error:
            left_out[str(error)] = (
                f"is damaged: decompressed it has more than {task.plain_bytes_max >> 20} MiB; "
                "it was skipped"
            )
            continue
        return outcome


def _write(task: SegmentTask, outcome: TaskOutcome) -> None:
    schema = _stored(task.rules.schema)
    loads: list[pa.Table] = []
    sums: list[pa.Table] = []
    with (
        complete_file(task.target, task.path) as file,
        pq.ParquetWriter(file, schema, use_dictionary=dictionary_columns(schema)) as writer,
    ):
        for pieces in _blocks(task, outcome):
            table = _judged(pieces, task.rules)
            _count(table, outcome)
            writer.write_table(table.cast(schema))
            loads += [table.drop_columns([TEXT, SEGMENT])] if task.sums else []
            if sum(map(len, loads)) >= ROWS_SUMMED:
                sums.append(_by_hour(loads, task.sums[0][0]))
                loads = []
    outcome.written.append(task.path)
    if loads:
        sums.append(_by_hour(loads, task.sums[0][0]))
    if sums:
        merged = _with_namespace(_one_chunk(pa.concat_tables(sums)))
        for keys, path in task.sums:
            with complete_file(task.target, path) as file:
                pq.write_table(_summed(merged, keys), file)
            outcome.written.append(path)


@contextmanager
def complete_file(files: Any, path: str) -> Iterator[Any]:
    """A new file that is there once it is complete. Spark may run a task again, or twice at once:
    the first file stays, and the others go. Spark's readers ignore names with an underscore first.
    """
    folder, _, name = path.rpartition("/")
    part = f"{folder}/_{name}.{uuid4().hex}"
    try:
        with files.open(part, "wb") as file:
            yield file
        if not files.exists(path):
            files.mv(part, path)
    except FileExistsError:
        pass  # HDFS replaces no file: the other was faster
    finally:
        if files.exists(part):
            files.rm(part)


def _count(table: pa.Table, outcome: TaskOutcome) -> None:
    bad = table.filter(pc.is_valid(table[PROBLEM])).select([PROBLEM, SEGMENT, TEXT])
    outcome.rows += table.num_rows - bad.num_rows
    outcome.put_aside.update(bad[PROBLEM].to_pylist())
    for row in bad.slice(0, SAMPLES_MAX - len(outcome.samples)).to_pylist():
        outcome.samples.append({**row, TEXT: row[TEXT][:SAMPLE_CHARS_MAX]})


def _blocks(task: SegmentTask, outcome: TaskOutcome) -> Iterator[list[Piece]]:
    """The lines of all segments, in lists of bounded size."""
    pieces: list[Piece] = []
    block_bytes = 0
    for path, name in task.segments:
        if name in outcome.faults:
            continue
        for lines in _pieces(task, path, name, outcome):
            pieces.append((name, lines))
            block_bytes += len(lines)
            if block_bytes >= BLOCK_BYTES:
                yield pieces
                pieces, block_bytes = [], 0
    if block_bytes:
        yield pieces


def _pieces(task: SegmentTask, path: str, name: str, outcome: TaskOutcome) -> Iterator[bytes]:
    """Complete lines of a segment, in pieces; of a damaged one, those before the damage."""
    size, rest = 0, b""
    try:
        with task.source.open(path, "rb") as file:
            compressed = name.endswith(".gz")
            read = plain_blocks(file) if compressed else iter(partial(file.read, READ_BYTES), b"")
            for part in read:
                size += len(part)
                if compressed and size > task.plain_bytes_max:
                    raise TooLargeError(name)
                end = part.rfind(b"\n") + 1
                if end:
                    yield rest + part[: end - 1]
                    rest = part[end:]
                elif len(rest) <= LINE_BYTES_MAX:
                    rest += part
        if rest:
            yield rest
    except FileNotFoundError:
        raise
    except zlib.error:
        outcome.faults[name] = DAMAGED
    except OSError as error:
        outcome.faults[name] = f"cannot be read: {error}"


def _parsed_in_parts(lines: list[bytes], schema: pa.Schema) -> tuple[pa.Table, pa.BooleanArray]:
    """The lines with nulls for those that are no records, and which these are. A line that is no
    record has only its neighbours read one by one.
    """
    tables = [schema.empty_table()]
    bad: list[bool] = []
    for start in range(0, len(lines), LINES_SINGLY):
        part = lines[start : start + LINES_SINGLY]
        records, wrong = _parsed(part, len(part), schema), [False] * len(part)
        if records is None:
            records, wrong = _parsed_singly(part, schema)
        tables.append(records)
        bad += wrong
    return pa.concat_tables(tables), pa.array(bad, pa.bool_())


def _parsed(pieces: Sequence[bytes], count: int, schema: pa.Schema) -> pa.Table | None:
    """Lines, so many, in one go; None if they must be looked at one by one.

    Arrow's reader takes all lines or none, has objects for structs only, and takes several objects
    on a line, or one on several; it crashes at a `null`.
    """
    block = b"\n".join(pieces)
    if (
        any(pa.types.is_map(of_type) for of_type in schema.types)
        or not block.startswith(b"{")
        or block.count(b"}\n{") + 1 != count
        or max(map(len, pieces)) > LINE_BYTES_MAX
    ):
        return None
    try:
        if not block.isascii():
            block.decode()
        records = pj.read_json(
            pa.BufferReader(block),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(block)),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return records if records.num_rows == count else None


def _parsed_singly(lines: list[bytes], schema: pa.Schema) -> tuple[pa.Table, list[bool]]:
    """The lines with nulls for those that are no records, and which these are."""
    rows: list[Row] = []
    bad = []
    for line in lines:
        row: Row = {}
        try:
            if len(line) <= LINE_BYTES_MAX:
                row = _struct(json.loads(line), schema)
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            pass
        rows.append(row)
        bad.append(not row)
    return pa.Table.from_pylist(rows, schema), bad


def _struct(value: Any, fields: Any) -> Row:
    """A JSON object with the columns of a schema. Raises what conversions raise."""
    return {field.name: _typed(value.get(field.name), field.type) for field in fields}


def _typed(value: Any, of_type: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(of_type):
        return _struct(value, of_type.fields)
    if pa.types.is_map(of_type):
        return {name: _typed(item, of_type.item_type) for name, item in value.items()}
    if pa.types.is_list(of_type):
        if not isinstance(value, list):
            raise TypeError
        return [_typed(item, of_type.value_type) for item in value]
    if pa.types.is_string(of_type):
        text = value if isinstance(value, str) else json.dumps(value)
        text.encode()
        return text
    if pa.types.is_floating(of_type) and (type(value) in (int, float) or value in NOT_FINITE):
        return float(value)
    wanted = bool if pa.types.is_boolean(of_type) else int
    if type(value) is not wanted or not -(2**63) <= value < 2**63:
        raise TypeError
    return value


def _judged(pieces: Sequence[Piece], rules: RecordFormat) -> pa.Table:
    """The lines as a table with the columns of the schema, `problem` (the first thing that is wrong
    with a line), its `text` if something is, and `segment`.
    """
    counts = [data.count(b"\n") + 1 for _, data in pieces]
    records = _parsed([data for _, data in pieces], sum(counts), rules.schema)
    checks: list[tuple[str, Any]] = []
    if records is None:
        pieces = [(name, line) for name, data in pieces for line in data.split(b"\n") if line]
        counts = [1] * len(pieces)
        records, bad = _parsed_in_parts([line for _, line in pieces], rules.schema)
        checks.append((NOT_JSON, bad))
    if rules.causes:
        records = _with_cause_and_parent(records, rules.causes)
    problem = text = pa.nulls(len(records), pa.string())
    for reason, wrong in reversed([*checks, *_checks(records, rules)]):
        if pc.any(wrong).as_py():
            problem = pc.if_else(wrong, reason, problem)
    if problem.null_count < len(problem):
        lines = [line for _, data in pieces for line in data.split(b"\n")]
        wrong = pc.is_valid(problem).to_pylist()
        text = pa.array(
            line[:LINE_BYTES_MAX].decode("utf-8", "replace") if is_wrong else None
            for line, is_wrong in zip(lines, wrong, strict=True)
        )
    ends = pa.array(accumulate(counts), pa.int32())
    segment = pa.RunEndEncodedArray.from_arrays(ends, [name for name, _ in pieces])
    return (
        records.append_column(PROBLEM, problem)
        .append_column(TEXT, text)
        .append_column(SEGMENT, pc.run_end_decode(segment))
    )


def _by_hour(tables: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    """Sums by two names and the hour."""
    loads = pa.concat_tables(tables)
    if loads[PROBLEM].null_count < len(loads):
        loads = loads.filter(pc.is_null(loads[PROBLEM]))

    def number(name: str) -> Any:
        values = loads[name] if name in loads.column_names else pa.nulls(len(loads), pa.int64())
        return pc.fill_null(values, 0)

    ts, seconds = loads["ts"], pc.divide(loads["intervalMs"].cast(pa.float64()), 1000)
    throughput = pc.add(number("msgThroughputIn"), number("msgThroughputOut"))
    rate = pc.add(number("msgRateIn"), number("msgRateOut"))
    connections = pc.add(number("producers"), number("consumers")).cast(pa.float64())
    columns = {
        "hour": pc.multiply(pc.divide(ts, HOUR_MS), HOUR_MS),
        "samples": pa.repeat(1, len(loads)),
        "bytes": pc.multiply(throughput, seconds),
        "messages": pc.multiply(rate, seconds),
        "connection_hours": pc.divide(pc.multiply(connections, seconds), 3600),
        "throughput_sum": throughput,
        "throughput_max": throughput,
        "rate_sum": rate,
        "rate_max": rate,
        "first_ts": ts,
        "last_ts": ts,
        "topics_max": number("topics"),
        "backlog_max": number("backlogMessages"),
    }
    # Numbers are grouped twice as fast as texts.
    encoded = {name: loads[name].dictionary_encode() for name in names}
    return _summed(_one_chunk(pa.table(encoded | columns)), (*names, "hour"))


def _one_chunk(table: pa.Table) -> pa.Table:
    return table.unify_dictionaries().combine_chunks()


def _with_namespace(sums: pa.Table) -> pa.Table:
    bundles = sums["bundle"].combine_chunks()
    spaces = _namespace(bundles.dictionary).take(bundles.indices)
    return sums.append_column("namespace", spaces)


def _summed(sums: pa.Table, keys: Sequence[str]) -> pa.Table:
    summed = sums.group_by(keys, use_threads=False).aggregate(list(SUMS.items()))
    summed = summed.select([*keys, *(f"{name}_{how}" for name, how in SUMS.items())])
    return summed.rename_columns([*keys, *SUMS])


@dataclass(frozen=True)
class RecordSearch:
    """Records to pick out of files that tasks wrote."""

    files: Any
    column: str
    names: Sequence[str]

    def run(self, path: str) -> pa.Table:
        """Name, `broker`, `ts` and `throughput` of each."""
        wanted = pc.field(PROBLEM).is_null() & pc.field(self.column).isin(self.names)
        columns = [self.column, "broker", "ts", "msgThroughputIn", "msgThroughputOut"]
        with self.files.open(path, "rb") as file:
            table = pq.read_table(file, columns=columns, filters=wanted, use_threads=False)
        both = (pc.fill_null(table[name], 0.0) for name in columns[3:])
        return table.select(columns[:3]).append_column("throughput", pc.add(*both))


def _with_cause_and_parent(steps: pa.Table, causes: dict[str, str]) -> pa.Table:
    old, reason = pc.equal(steps["v"], 1), steps["reason"]
    cause = steps["cause"]
    for text, meant in causes.items():
        cause = pc.coalesce(cause, pc.if_else(pc.and_(old, pc.equal(reason, text)), meant, None))
    last = pc.replace_substring_regex(reason, "^.* ", "")
    parent = pc.binary_join_element_wise(_namespace(steps["bundle"]), last, "/")
    split = pc.and_(old, pc.starts_with(reason, "split of "))
    parent = pc.coalesce(steps["parent"], pc.if_else(split, parent, None))
    names = steps.column_names
    steps = steps.set_column(names.index("cause"), "cause", cause)
    return steps.set_column(names.index("parent"), "parent", parent)


def _namespace(bundles: Any) -> Any:
    return pc.replace_substring_regex(bundles, "^([^/]*/[^/]*).*$", r"\1")


def _checks(records: pa.Table, rules: RecordFormat) -> Iterator[tuple[str, Any]]:
    for name in rules.required:
        yield f"{name} is missing", pc.is_null(records[name])
    for name, low, high in rules.numbers:
        values = _column(records, name)
        fine = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        yield f"{name} is impossible", pc.fill_null(pc.invert(fine), False)
    ts = records["ts"]
    yield "its time is after the day", pc.fill_null(pc.greater_equal(ts, rules.end_ms), False)
    yield "its time is before the day", pc.fill_null(pc.less(ts, rules.first_ms), False)


def _column(records: pa.Table, name: str) -> Any:
    """A column; in a struct, if its name has a dot."""
    outer, _, inner = name.partition(".")
    return pc.struct_field(records[outer], inner) if inner else records[outer]


def dictionary_columns(schema: pa.Schema) -> list[str]:
    """Measured values and times hardly repeat: a dictionary would not make them smaller."""
    leaves = _leaves(schema)
    return [name for name, kind in leaves if name != "ts" and not pa.types.is_floating(kind)]


def _stored(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *(pa.field(name, pa.string()) for name in (PROBLEM, TEXT, SEGMENT))])


def _leaves(schema: Any, prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    for leaf in schema:
        if pa.types.is_struct(leaf.type):
            yield from _leaves(leaf.type.fields, f"{prefix}{leaf.name}.")
        else:
            yield f"{prefix}{leaf.name}", leaf.type
