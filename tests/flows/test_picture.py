"""The timeline picture and the summary: drawn for any session, however little happened in it."""

from pathlib import Path

import matplotlib.image
import pytest

from flows.picture import draw
from flows.story import tell
from tests.support.script import Session

pytestmark = pytest.mark.flow

LONG = "This is the answer to your question. It is somewhat longer than you would think, so it goes on."


@pytest.mark.parametrize("what", ["nothing", "a turn", "an overlap", "an open turn"])
def test_any_session_has_a_picture(what: str, tmp_path: Path) -> None:
    said = lambda r: "what is it" if r.data.turn == "turn-1" else "stop"  # noqa: E731
    session = Session(transcript=said, reply=LONG).silence(480)
    if what != "nothing":
        session.speak(960)
    if what in ("a turn", "an overlap"):
        session.silence(2400)
    if what == "an overlap":
        session.speak(400).silence(2000)
    if what != "an open turn":
        session.close()
    picture = matplotlib.image.imread(draw(tell("s", session.inputs), tmp_path / "p.png"))
    assert picture.shape[1] > 1000 and picture[..., :3].std() > 0.01


def test_the_story_has_what_was_said_heard_and_judged() -> None:
    said = lambda r: "what is it" if r.data.turn == "turn-1" else "stop"  # noqa: E731
    session = Session(transcript=said, reply=LONG).silence(480).speak(960).silence(2400)
    story = tell("s", session.speak(400).silence(2000).close().inputs)
    assert [t.text for t in story.turns.values()] == ["what is it", "stop"]
    (response,) = story.responses.values()
    assert response.how == "cancelled" and LONG.startswith(response.heard_text)
    assert sum(b - a for a, b in response.played) == pytest.approx(response.heard_us, abs=40_000)
    assert [(o.verdict, o.kind) for o in story.overlaps.values()] == [("interruption", "stop")]
    latency = story.latency_us(response)
    assert latency is not None and 300_000 <= latency <= 600_000
    assert story.speech[0] == (480_000, 1_440_000) and story.end == "closed"
