"""`venus sql`: DuckDB over a timeline, session files or exported Parquet.

The views; all times are µs of media time:

| view | one row for each | columns |
| --- | --- | --- |
| events | record of the timeline lane | those of the Parquet files (`infra.timeline.parquet`): session, offset, appended_us, type, kind, id, source, mediatime_us, cause, correlation, sequence, data (JSON) |
| turns | turn | session, turn, start_us, end_us, decided_us, text, reason, probability |
| overlaps | overlap | session, overlap, response, start_us, resolved_us, verdict, intent, evidence, confidence, speech_us |
| responses | response | session, response, turn, requested_us, started_us, ended_us, outcome, text, heard_text, heard_us |
| works | work | session, work, query, skill, queued_us, finished_us, outcome, result, delivered_us |
| windows | perception window | session, channel, epoch, first_sample, start_us, p1, p2, p3, level_db, echo |
"""  # noqa: E501

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from flows.session_files import open_any, sessions_on
from infra.timeline.parquet import SCHEMA, row_of
from infra.timeline.port import Timeline
from schemas.errors import BadInput
from schemas.record import Lane

_OVERLAPS = re.compile(
    rb"(?:\b(?:from|join)\s+|,\s*|^)(overlaps)\b|\b(overlaps)(?=\.)", re.IGNORECASE
)
"""A keyword of SQL, and the obvious name of the view: quoted where it stands for a table."""

COLUMNS = tuple(name for name in SCHEMA.names if name not in ("headers", "value"))
ROWS = 20_000

VIEWS = {
    "turns": """
        SELECT e.session, e.data->>'$.turn' AS turn, any_value((e.data->>'$.start_us')::BIGINT) AS start_us,
            any_value((e.data->>'$.end_us')::BIGINT) AS end_us,
            max(CASE WHEN e.type = 'turn.ended' THEN e.mediatime_us END) AS decided_us,
            coalesce(max(CASE WHEN e.type = 'turn.amended' THEN e.data->>'$.text' END),
                     max(CASE WHEN e.type = 'turn.ended' THEN e.data->>'$.text' END)) AS text,
            max(CASE WHEN e.type = 'turn.ended' THEN e.data->>'$.reason' END) AS reason,
            max(CASE WHEN e.type = 'turn.ended' THEN (e.data->>'$.probability')::DOUBLE END) AS probability
        FROM events e WHERE e.type IN ('turn.started', 'turn.ended', 'turn.amended') GROUP BY ALL""",
    "overlaps": """
        SELECT e.session, e.data->>'$.overlap' AS overlap, any_value(e.data->>'$.response') AS response,
            max(CASE WHEN e.type = 'overlap.started' THEN (e.data->>'$.start_us')::BIGINT END) AS start_us,
            max(CASE WHEN e.type = 'overlap.resolved' THEN e.mediatime_us END) AS resolved_us,
            max(e.data->>'$.verdict') AS verdict, max(e.data->>'$.kind') AS intent, max(e.data->>'$.evidence') AS evidence,
            max((e.data->>'$.confidence')::DOUBLE) AS confidence, max((e.data->>'$.speech_us')::BIGINT) AS speech_us
        FROM events e WHERE e.type IN ('overlap.started', 'overlap.resolved') GROUP BY ALL""",
    "responses": """
        SELECT e.session, e.data->>'$.response' AS response, max(e.data->>'$.turn') AS turn,
            min(CASE WHEN e.type = 'response.requested' THEN e.mediatime_us END) AS requested_us,
            min(CASE WHEN e.type = 'response.started' THEN e.mediatime_us END) AS started_us,
            min(CASE WHEN e.type IN ('response.ended', 'response.cancelled', 'response.failed') THEN e.mediatime_us END)
                AS ended_us,
            max(CASE WHEN e.type IN ('response.ended', 'response.cancelled', 'response.failed')
                THEN replace(e.type, 'response.', '') END) AS outcome,
            max(CASE WHEN e.type = 'generation.completed' THEN e.data->>'$.text' END) AS text,
            coalesce(max(CASE WHEN e.type = 'heard.amended' THEN e.data->>'$.heard_text' END), max(e.data->>'$.heard_text'))
                AS heard_text,
            coalesce(max(CASE WHEN e.type = 'heard.amended' THEN (e.data->>'$.heard_us')::BIGINT END),
                     max((e.data->>'$.heard_us')::BIGINT)) AS heard_us
        FROM events e WHERE e.type IN ('response.requested', 'response.started', 'response.ended', 'response.cancelled',
            'response.failed', 'generation.completed', 'heard.amended') GROUP BY ALL""",
    "works": """
        SELECT e.session, e.data->>'$.work' AS work, max(e.data->>'$.query') AS query, max(e.data->>'$.skill') AS skill,
            min(CASE WHEN e.type = 'work.queued' THEN e.mediatime_us END) AS queued_us,
            min(CASE WHEN e.type IN ('work.completed', 'work.failed', 'work.cancelled', 'work.expired')
                THEN coalesce(e.mediatime_us, e.reached_us) END) AS finished_us,
            max(CASE WHEN e.type IN ('work.completed', 'work.failed', 'work.cancelled', 'work.expired')
                THEN replace(e.type, 'work.', '') END) AS outcome,
            max(e.data->>'$.result') AS result,
            min(CASE WHEN e.type = 'work.delivered' THEN e.mediatime_us END) AS delivered_us
        FROM (SELECT *, max(mediatime_us) OVER (PARTITION BY session ORDER BY "offset") AS reached_us FROM events) e
        WHERE starts_with(e.type, 'work.') AND e.data->>'$.work' IS NOT NULL GROUP BY ALL""",
    "windows": """
        SELECT e.session, e.data->>'$.channel' AS channel, (e.data->>'$.epoch')::INT AS epoch,
            (e.data->>'$.first_sample')::BIGINT AS first_sample, (e.data->>'$.start_us')::BIGINT AS start_us,
            (e.data->>'$.probabilities[0]')::DOUBLE AS p1, (e.data->>'$.probabilities[1]')::DOUBLE AS p2,
            (e.data->>'$.probabilities[2]')::DOUBLE AS p3, (e.data->>'$.level_db')::DOUBLE AS level_db,
            (e.data->>'$.echo')::DOUBLE AS echo
        FROM events e WHERE e.type = 'perception.window'""",
}


def connect(wheres: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """A database in memory whose views show the given recordings.

    Raises:
        BadInput: one of them cannot be read, or two of them hold a session of one name.
    """
    db = duckdb.connect()
    parquet = [w for w in wheres if "://" not in w and w.endswith(".parquet")]
    parts: list[str] = []
    if parquet:
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in parquet)
        try:
            db.execute(
                f"CREATE VIEW parquet_events AS SELECT {_columns()} FROM read_parquet([{names}], hive_partitioning=false)"
            )
        except duckdb.Error as error:
            raise BadInput(f"{parquet[0]}: {str(error).splitlines()[0]}") from None
        parts.append(f"SELECT {_columns()} FROM parquet_events WHERE lane = 'timeline'")
    held: dict[str, str] = {}
    others = [w for w in wheres if w not in parquet]
    if others or not parts:
        schema = pa.schema([SCHEMA.field(name) for name in COLUMNS])
        db.register("no_events", pa.Table.from_pylist([], schema=schema))
        db.execute("CREATE TABLE loaded AS SELECT * FROM no_events")
        for where in others:
            with open_any(where) as timeline:
                for name in sessions_on(timeline):
                    # By id one of them would hide the other.
                    if held.setdefault(name, where) != where:
                        raise BadInput(
                            f"session {name!r} is in {held[name]} and in {where}; ask one at a time"
                        )
                for table in _tables(timeline, schema):
                    db.register("batch", table)
                    db.execute("INSERT INTO loaded SELECT * FROM batch")
                    db.unregister("batch")
        parts.append(f"SELECT {_columns()} FROM loaded")
    # A crash or a retry may have written a record twice: by id, the first one counts.
    inner = " UNION ALL ".join(parts)
    db.execute(
        f"CREATE VIEW events AS SELECT * EXCLUDE (lane) FROM ({inner}) "
        'QUALIFY id IS NULL OR row_number() OVER (PARTITION BY session, source, id ORDER BY "offset") = 1'
    )
    for name, select in VIEWS.items():
        db.execute(f'CREATE VIEW "{name}" AS {select}')
    return db


def _columns() -> str:
    return ", ".join(f'"{name}"' for name in COLUMNS)


def _tables(timeline: Timeline, schema: pa.Schema) -> Iterable[pa.Table]:
    rows: list[dict[str, Any]] = []
    for partition in range(timeline.partitions):
        for record in timeline.scan(Lane.TIMELINE, partition):
            row = row_of(record)
            rows.append({name: row[name] for name in COLUMNS})
            if len(rows) >= ROWS:
                yield pa.Table.from_pylist(rows, schema=schema)
                rows = []
    if rows:
        yield pa.Table.from_pylist(rows, schema=schema)


def query(wheres: Sequence[str], sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """(column names, rows).

    Raises:
        BadInput: the recordings cannot be read, or DuckDB does not accept the query.
    """
    for where in wheres:
        if "://" not in where and not Path(where).is_file():
            raise BadInput(f"{where}: no such file")
    with connect(wheres) as db:
        try:
            result: duckdb.DuckDBPyConnection | None = db.execute(_with_overlaps(sql))
            if result is None:  # whatever its type says: nothing but space, `;` and comments
                raise BadInput("sql: there is no statement")
            return [d[0] for d in result.description or []], result.fetchall()
        except duckdb.Error as error:
            raise BadInput(f"sql: {str(error).splitlines()[0]}") from None


def _with_overlaps(sql: str) -> str:
    """The statement with that name quoted, except in its literals and comments."""
    text = sql.encode()  # DuckDB counts bytes
    keywords = {at for at, kind in duckdb.tokenize(sql) if kind == duckdb.token_type.keyword}

    def quoted(match: re.Match[bytes]) -> bytes:
        start, end = match.span(match.lastindex or 0)
        if start not in keywords:
            return match[0]
        return match[0][: start - match.start()] + b'"' + text[start:end] + b'"'

    return _OVERLAPS.sub(quoted, text).decode()
