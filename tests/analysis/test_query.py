"""SQL over timelines, session files and Parquet gives the same answers."""

import json
from pathlib import Path

import pytest

from flows.cli import main
from flows.query import VIEWS, query
from flows.session_files import Wishes, export
from flows.session_import import import_file
from infra.timeline import open_timeline
from schemas.errors import BadInput
from tests.replay.sessions import memory, talk

pytestmark = pytest.mark.flow


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("sql")
    log = memory(talk("a", 20).close(), talk("b", 25).close())
    for suffix in ("mcap", "parquet", "jsonl"):
        export(log, folder / f"x.{suffix}", Wishes())
    with open_timeline(f"sqlite:///{folder}/log.db") as db:
        import_file(folder / "x.mcap", db)
    return [
        *(str(folder / f"x.{s}") for s in ("mcap", "parquet", "jsonl")),
        f"sqlite:///{folder}/log.db",
    ]


def test_views_are_the_same_everywhere(places: list[str]) -> None:
    for view in [*VIEWS, "events"]:
        columns = '* EXCLUDE (appended_us, "offset", partition)' if view == "events" else "*"
        order = "session, id" if view == "events" else "ALL"
        answers = [
            query([place], f"SELECT {columns} FROM {view} ORDER BY {order}") for place in places
        ]
        assert all(answer == answers[0] for answer in answers)
        assert answers[0][1] or view == "works"


def test_turns_and_responses(places: list[str]) -> None:
    names, rows = query(
        places[:1],
        "SELECT turn, start_us, end_us, text, reason FROM turns WHERE session = 'a' ORDER BY start_us",
    )
    assert names == ["turn", "start_us", "end_us", "text", "reason"]
    assert rows[0] == ("turn-1", 992_000, 2_208_000, "what is the weather in Paris", "complete")
    _, rows = query(
        places[:1],
        "SELECT outcome, heard_us > 0 FROM responses WHERE session = 'a' AND outcome = 'ended'",
    )
    assert rows and all(row == ("ended", True) for row in rows)
    _, ((count,),) = query(
        places[:1],
        "SELECT count(*) FROM overlaps JOIN responses r ON overlaps.response = r.response",
    )
    assert count > 0
    _, ((p, level),) = query(places[:1], "SELECT max(p1), min(level_db) FROM windows")
    assert (p, level) == (0.95, -30.0)


def test_a_partitioned_folder(tmp_path: Path) -> None:
    import duckdb

    export(
        memory(talk("a/b", 10).close(), talk("c", 10).close()),
        tmp_path / "p",
        Wishes(media=False),
        "parquet",
    )
    count = duckdb.sql(
        f"SELECT session, count(*) FROM '{tmp_path}/p/*/*.parquet' GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert [name for name, _ in count] == ["a/b", "c"] or [name for name, _ in count] == [
        "a%2Fb",
        "c",
    ]


@pytest.mark.parametrize(
    ("sql", "answer"),
    [
        ("SELECT 'a, overlaps'", "a, overlaps"),
        ("SELECT 'é', $$from overlaps$$, 'é, overlaps' FROM overlaps LIMIT 1", "é"),
        ("SELECT count(*) > 0 /* , overlaps */ FROM turns, overlaps -- , overlaps", True),
        ("FROM overlaps SELECT count(overlaps.start_us) > 0", True),
        ('SELECT "x, overlaps" FROM (SELECT 1 AS "x, overlaps")', 1),
    ],
)
def test_the_name_of_the_view_is_only_a_name_where_it_stands_for_a_table(
    places: list[str], sql: str, answer: object
) -> None:
    _, rows = query(places[:1], sql)
    assert rows[0][0] == answer
    assert all('"' not in str(cell) for cell in rows[0])


@pytest.mark.parametrize("sql", ["", " ; -- x"])
def test_a_statement_without_words(places: list[str], sql: str) -> None:
    with pytest.raises(BadInput, match="sql: there is no statement"):
        query(places[:1], sql)


def test_on_the_command_line(places: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sql", "SELECT count(*) AS n FROM turns", places[0], "--json"])
    assert caught.value.code == 0 and json.loads(capsys.readouterr().out)["n"] > 4
    with pytest.raises(SystemExit) as caught:
        main(["sql", "SELECT nothing FROM nowhere", places[0]])
    assert caught.value.code == 2 and len(capsys.readouterr().err.splitlines()) == 1


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"no")
    for place in (str(tmp_path / "x.parquet"), str(tmp_path / "y.mcap")):
        with pytest.raises(BadInput):
            query([place], "SELECT 1 FROM events")
