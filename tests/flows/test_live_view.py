"""What people see of a session while it happens agrees with what is told of it afterwards."""

import io
import re

import pytest
from rich.console import Console

from flows.live_view import LiveView
from operators.fold import SessionFold
from schemas.cloudevents import decode
from tests.replay.sessions import records, talk

pytestmark = pytest.mark.flow


def test_an_answer_is_told_once_when_it_is_heard() -> None:
    out = io.StringIO()
    fold = SessionFold("one")
    with LiveView("one", console=Console(file=out, width=200)) as view:
        for record in records(talk("one", 30).close()):
            for applied in fold.feed(decode(record)):
                view.show(applied)
    told = re.findall(r"begins to speak  \[(\S+) s after the user\]", out.getvalue())
    story = view.story
    late = [story.latency_us(r) for r in story.responses.values() if r.first_heard_us is not None]
    assert len(late) >= 2 and told == [f"{us / 1e6:.2f}" for us in late if us is not None]
    assert "session ended" in out.getvalue()
