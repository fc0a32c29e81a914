"""What words over the assistant mean, by rules (law: the verdict says which evidence decided and how sure it is).

In this order; acknowledgements at the beginning ("yeah, no, wait") are passed over before 3 and 4:

    words                                                       verdict
    ---------------------------------------------------------   ---------------------------
    1 none                                                      noise
    2 nothing but acknowledgements                              backchannel, but an interruption if they answer a question
    3 they begin like a stop ("wait")                           interruption: stop
    4 they begin like a correction ("no, I mean")               interruption: repair
    5 a voice far below the user's usual level, or an aside     side_talk
    6 fewer than overlap.min_words                              inconclusive
    7 anything else                                             interruption: redirect

A low endpoint probability ("yeah, but …" breaks off) makes a backchannel less sure, a high one more.
"""

from typing import Literal, NamedTuple

from operators.heard import words
from operators.words import WordLists, starts_with, without_leading
from schemas.policy import OverlapPolicy

Verdict = Literal["interruption", "backchannel", "side_talk", "noise", "echo", "inconclusive"]
Intent = Literal["stop", "repair", "redirect"]

WORDS_PAST_A_QUESTION = 4
"""So many words after its question mark an acknowledgement still answers the question."""


class Judgement(NamedTuple):
    verdict: Verdict
    kind: Intent | None
    evidence: str
    confidence: float

    @property
    def certain(self) -> bool:
        """Whether the rules need no second opinion: intent words, silence, what was said aside."""
        return self.kind in ("stop", "repair") or self.verdict in ("noise", "side_talk")


def judge_words(
    text: str,
    lists: WordLists,
    policy: OverlapPolicy,
    *,
    asked: bool,
    drop_db: float | None = None,
    endpoint: float | None = None,
) -> Judgement:
    """`asked`: the assistant has just asked something; `drop_db`: how far the voice lies below the user's usual level."""
    said = words(text)
    if not said:
        return Judgement("noise", None, "no words", 0.8)
    quoted = f"words {' '.join(said[:8])!r}"
    rest = without_leading(said, lists.acknowledgements)
    if not rest:
        if asked:
            return Judgement("interruption", "redirect", f"{quoted} answer a question", 0.7)
        return _backchannel(quoted, endpoint)
    for phrases, kind, confidence in (
        (lists.stops, "stop", 0.95),
        (lists.repairs, "repair", 0.9),
    ):
        if starts_with(said, phrases) or starts_with(rest, phrases):
            intent: Intent = "stop" if kind == "stop" else "repair"
            return Judgement("interruption", intent, quoted, confidence)
    if policy.side_talk_drop and drop_db is not None and drop_db >= policy.side_talk_drop:
        return Judgement(
            "side_talk", None, f"{quoted}, {drop_db:.0f} dB below the user's level", 0.7
        )
    if starts_with(said, lists.asides) or starts_with(rest, lists.asides):
        return Judgement("side_talk", None, quoted, 0.75)
    if len(said) < policy.min_words:
        return Judgement("inconclusive", None, f"{quoted}, fewer than {policy.min_words}", 0.6)
    return Judgement("interruption", "redirect", quoted, 0.85)


def _backchannel(quoted: str, endpoint: float | None) -> Judgement:
    if endpoint is None:
        return Judgement("backchannel", None, quoted, 0.9)
    sure = 0.95 if endpoint > 0.5 else 0.7
    return Judgement("backchannel", None, f"{quoted}, endpoint {endpoint:.2f}", sure)


def just_asked(heard: str) -> bool:
    """Whether the assistant's last words were a question, or at most a few words past one."""
    after = max(heard.rfind("?"), heard.rfind("？"))
    return after >= 0 and len(words(heard[after + 1 :])) <= WORDS_PAST_A_QUESTION
