"""`venus work`: what it shows, what it appends, and what it says to wrong use."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.query import query
from flows.replay import all_records, sessions_of
from flows.report.session_page import write_session
from flows.work_view import find_work
from infra.blobs import BlobStore
from infra.timeline import open_timeline
from operators.fold import SessionFold
from schemas.base import Kind
from schemas.cloudevents import decode
from schemas.envelope import Event
from schemas.errors import BadInput
from schemas.record import Lane
from schemas.work import WorkArtifact, WorkRequested
from tests.harness.support import append
from tests.support.works import WorkSession

pytestmark = pytest.mark.flow


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A log with a session that has one work done and told, and one that runs."""
    digest = BlobStore(str(tmp_path / "blobs")).put(b"a note")
    session = WorkSession("talk")
    session.silence(960).says("What is the weather in Paris?").silence(2016).running()
    note = WorkArtifact(
        work="work-1", name="../note.txt", media_type="text/plain", size=6, digest=digest
    )
    session.progress("Half.").called("weather")
    session.harness("work-1", note)
    session.completes("In Paris it is sunny.").silence(6000)
    session.observe(WorkRequested(query="Read the news", route="general"))
    made = f"sqlite:///{tmp_path}/log.db"
    with open_timeline(made) as log:
        append(log, *map(as_written, session.events))
    return made


def as_written(event: Event) -> Event:
    """The Harness does not know the session's time."""
    return event._replace(mediatime=None) if event.source.startswith("harness") else event


def venus(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["work", *arguments])
    if isinstance(result.exception, BadInput):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_works_are_listed_with_what_became_of_them(url: str) -> None:
    lines = [json.loads(line) for line in venus("list", "--json", "--timeline", url).splitlines()]
    assert [(w["work"], w["status"], w["delivery"]) for w in lines] == [
        ("work-1", "completed", "delivered"),
        ("work-2", "queued", "none"),
    ]
    shown = venus("list", "--timeline", url)
    assert "weather(city=paris)" in shown and "Read the news" in shown


def test_a_work_tells_its_story(url: str) -> None:
    shown = venus("show", "work-1", "--timeline", url)
    for part in ("work.queued", "Half.", "weather", "work.delivered", "In Paris it is sunny."):
        assert part in shown


def test_what_the_harness_says_is_told_at_the_time_at_which_it_came(url: str) -> None:
    with open_timeline(url) as log:
        fold, came = SessionFold("talk"), {}
        for _, event in sessions_of(all_records(log, "talk")):
            for applied in fold.feed(event):
                came[applied.input.id] = applied.input.mediatime
        story = find_work(log, None, "work-1").story
    said = [e for e in story if e.kind is Kind.OUTCOME]
    assert {"work.running", "work.progress", "work.completed"} <= {e.type for e in said}
    assert [e.mediatime for e in said] == [came[e.id] for e in said]
    queued = next(e for e in story if e.type == "work.queued")
    assert said[0].mediatime > queued.mediatime


def test_the_report_has_a_row_for_each_work_and_no_other(url: str, tmp_path: Path) -> None:
    """A delivery belongs to its works, a request without a name to none."""
    page = tmp_path / "talk.html"
    with open_timeline(url) as log:
        write_session(log, "talk", page, with_sound=False)
    works = page.read_text().split("<h2>Works</h2>")[1].split("</table>")[0]
    rows = [re.sub("<[^>]+>", "|", row) for row in works.split("<tr")[2:]]
    assert ["work-1" in row for row in rows] == [True, False] and "work-2" in rows[1]
    assert "completed → delivering" in rows[0]


def test_sql_knows_when_a_work_was_done(url: str) -> None:
    """Its outcome has no media time of its own: it came at the session's."""
    statement = (
        "select work, queued_us, finished_us, delivered_us, outcome from works order by work"
    )
    _, (done, running) = query([url], statement)
    assert done[1] < done[2] <= done[3] and done[4] == "completed"
    assert running[0] == "work-2" and running[2] is None


def test_cancel_appends_a_request_as_a_device_does(url: str) -> None:
    venus("cancel", "work-2", "--timeline", url)
    with open_timeline(url) as log:
        last = [decode(r) for p in range(log.partitions) for r in log.scan(Lane.TIMELINE, p)][-1]
    assert (
        last.type == "work.cancel_requested"
        and last.data.work == "work-2"
        and last.session == "talk"
    )
    with pytest.raises(BadInput, match="ended already"):
        venus("cancel", "work-1", "--timeline", url)


def test_artifacts_are_fetched_into_the_folder_and_nowhere_else(url: str, tmp_path: Path) -> None:
    out = tmp_path / "files" / "here"
    venus(
        "artifacts",
        "work-1",
        "--timeline",
        url,
        "--blobs",
        str(tmp_path / "blobs"),
        "--out",
        str(out),
    )
    assert [p.name for p in out.iterdir()] == ["note.txt"] and (
        out / "note.txt"
    ).read_bytes() == b"a note"
    assert not (tmp_path / "files" / "note.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("eat",), "list, show"),
        (("show",), "needs the name"),
        (("show", "work-9"), "no work work-9"),
    ],
)
def test_wrong_use_is_one_line(url: str, arguments: tuple[str, ...], what: str) -> None:
    with pytest.raises(BadInput, match=what):
        venus(*arguments, "--timeline", url)


def test_neither_names_nor_words_are_read_as_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    session = WorkSession("[b]talk[/b][/]")
    session.silence(960)
    session.observe(WorkRequested(query="[b]news[/b][/]", route="general"))
    url = f"sqlite:///{tmp_path}/log.db"
    with open_timeline(url) as log:
        append(log, *(e for e in session.events if e.type != "perception.window"))
    for shown in (venus("list", "--timeline", url), venus("show", "work-1", "--timeline", url)):
        assert "[b]talk[/b][/]" in shown and "[b]news[/b][/]" in shown
