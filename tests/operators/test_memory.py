"""What the operators keep does not grow with the session: three hours, five hundred interruptions, works, absences.

Everything that is remembered has a bound (works, sentences, turns of the history); the first hour fills them all."""

import pickle

import pytest

from schemas.media import TextInput
from tests.support.works import WorkSession

pytestmark = [pytest.mark.pure]

INTERRUPTIONS = 500
HOURS = 3
LONG = "This is a long answer about nothing in particular. " * 4


def one_round(s: WorkSession, number: int) -> None:
    """A question, an answer that is interrupted, a work now and then, a user who is away."""
    s.says("tell me something", 640, 1920)
    s.transcript = "wait, something else" if number % 3 else "mhm"
    s.speak(640).silence(960)
    if number % 2 == 0:
        s.says(f"check my order number {number}", 960, 480)
        for work in s.fold.states["dispatch"].book.running:
            s.running(work.work).completes("It has left the store.", work.work)
    s.observe(TextInput(text=f"note {number}"))
    each = HOURS * 3_600_000 // INTERRUPTIONS
    s.silence(each - (s.at // 1000) % each)


def kept(s: WorkSession) -> int:
    """Bytes of all that the fold and its operators hold."""
    return len(pickle.dumps(s.fold))


def test_three_hours_and_five_hundred_interruptions_leave_no_more_than_one_hour() -> None:
    policy = {"idle.away_after": "8s", "idle.prompt_after": "4s", "idle.prompts_most": 1}
    s = WorkSession(reply=LONG, policy=policy)
    interruptions = 0
    sizes: list[int] = []
    for number in range(INTERRUPTIONS):
        one_round(s, number)
        interruptions += len(s.of("response.cancelled"))
        s.events.clear()
        s.inputs.clear()
        if number % 10 == 9:
            sizes.append(kept(s))
    assert interruptions >= INTERRUPTIONS and s.at >= HOURS * 3_600_000_000 * 0.99
    early, late = max(sizes[8:16]), max(sizes[-10:])
    assert late <= early * 1.05, f"{early:,} bytes in the first hour, {late:,} after {HOURS} h"
