"""Cases G about silence: prompts and absence are counted from what was heard, and follow the policy at once."""

import pytest

from schemas.envelope import Pcm
from schemas.responses import SpeechCompleted
from schemas.session import SessionUpdated
from tests.support.script import RATE, Session

pytestmark = [pytest.mark.case, pytest.mark.pure]


def test_g16_silence_counts_from_the_end_of_playback_not_of_the_synthesis() -> None:
    """20 s of speech come within a moment; the user hears them for 20 s."""
    policy = {"idle.prompt_after": "5s", "idle.away_after": "9s", "idle.prompts_most": 1}
    s = Session(hold=("speak",), policy=policy).silence(480).speak(640).silence(480)
    (request,) = s.open.values()
    pcm = Pcm(RATE, 1, bytes(2 * 20 * RATE))
    s.feed(s.outcome(request, pcm, 0, "response.speech"))
    done = SpeechCompleted(
        response=request.data.response, index=request.data.index, duration_us=pcm.duration_us
    )
    s.feed(s.outcome(request, done))
    s.held.clear()
    s.silence(40_000)
    ended = s.of("response.ended")[0].mediatime
    assert ended >= 21_000_000
    (prompt,) = s.of("floor.requested")
    assert 0 <= prompt.mediatime - ended - 5_000_000 <= 32_000
    told = s.of("response.ended")[1].mediatime
    assert 0 <= s.of("user.away")[0].mediatime - told - 9_000_000 <= 32_000


def test_g17_a_new_patience_holds_at_once() -> None:
    s = Session(policy={"idle.prompt_after": "10s"}).silence(1920)
    s.observe(SessionUpdated(policy={"idle.prompt_after": "200ms"})).silence(96)
    (prompt,) = s.of("floor.requested")
    assert prompt.mediatime <= s.at
