"""The policy: every threshold that a decision depends on, recorded per session in `session.configured`.

All durations are media time in microseconds and may be written with a unit (`turn.hold_max=2s`). Thresholds on speech and
silence act at the end of the first hop (32 ms) that reaches them. Operators read no other parameter (law 2).
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from schemas.base import LARGEST, Micros
from schemas.errors import BadInput
from schemas.policy_work import WorkPolicy

Probability = Annotated[float, Field(ge=0.0, le=1.0)]

MS = 1_000
S = 1_000_000


def _listed(value: object) -> object:
    """Phrases may be written as one text, separated by commas."""
    return [p.strip() for p in value.split(",") if p.strip()] if isinstance(value, str) else value


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)
    # A threshold that a newer release has added may be read; wishes are checked by `with_changes`, key by key.

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self


class VadPolicy(Section):
    """Speech activity by hysteresis on the voice activity probability of each hop."""

    activation: Probability = 0.5
    """Probability from which on a hop is voiced, while nobody speaks."""
    deactivation: Probability = 0.35
    """Probability below which a hop is silent, while somebody speaks."""
    min_speech: Micros = 96 * MS
    """Voiced time without a break that begins a speech."""
    min_silence: Micros = 256 * MS
    """Silent time without a break that ends a speech."""
    pre_roll: Micros = 500 * MS
    """Audio before the detected onset that belongs to the speech, never reaching into the speech before."""


class EndpointPolicy(Section):
    """When the endpoint model is asked, and what its answer means."""

    ask_after: Micros = 200 * MS
    """Silence after which the model is asked whether the turn is over."""
    max_audio: Micros = 8 * S
    """The last part of the turn that it is given."""
    forget_after: Micros = 500 * MS
    """A pause so long that the model is only given what was said after it: it takes one that it hears for a sign that more will come."""
    threshold: Probability = 0.5
    """A turn is complete above this probability; otherwise it is held."""
    give_up_after: Micros = 700 * MS
    """Silence after which a turn without an answer counts as complete, flagged `no_prediction`."""


class TurnPolicy(Section):
    """When a turn ends (all from the end of speech)."""

    end_silence: Micros = 320 * MS
    """Silence before which no turn ends."""
    hold_max: Micros = 3 * S
    """Silence that ends a turn whose words break off, or which the endpoint model takes for incomplete while they are not known."""
    hold_doubt: Micros = 1 * S
    """Silence that ends a turn of which only the endpoint model says that more will come, or that ends in digits."""
    transcript_deadline: Micros = 1 * S
    """Time after a turn's end in which its transcript is expected; after it, what a device has offered counts instead."""
    watchdog: Micros = 5 * S
    """Time after a turn's end at which it is ended without its words."""
    media_idle: Micros = 1 * S
    """Time without any media that closes an open speech."""
    longest: Micros = 60 * S
    """Length at which a turn is ended although the user speaks on."""
    reopen_within: Micros = 2 * S
    """Speech this soon after a turn that nobody has heard an answer to continues it; 0: never."""
    offered_silence: Micros = 800 * MS
    """Time after the last offered transcript that ends a turn of which voice activity knows nothing."""
    push_to_talk: bool = False
    """True: silence ends no turn; the device's commit does."""
    ignore_words: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """Phrases; what consists of nothing else is not taken as said."""


class OverlapPolicy(Section):
    """What happens when the user speaks while the assistant does."""

    interruptible: bool = True
    """False: the assistant finishes what it says; an interruption is recorded and answered after."""
    pause_after: Micros = 200 * MS
    """Speech this long over the assistant pauses it."""
    interrupt_after: Micros = 1200 * MS
    """Speech this long over the assistant interrupts without waiting for its words; until then it is only paused, so that nobody is
    talked over while "yeah, okay" is being understood."""
    resume_within: Micros = 2 * S
    """Time without evidence after which a paused assistant goes on."""
    min_words: Annotated[int, Field(ge=1, le=50)] = 1
    """Fewer words than these, in one utterance, do not interrupt unless they stop or correct; they are answered after."""
    side_talk_drop: Annotated[float, Field(ge=0.0, le=100.0)] = 15.0
    """A voice so many dB below the user's usual level does not speak to the assistant; 0: never judged by level."""
    backchannel_model: bool = False
    """Whether a learned classifier is asked about words that the rules do not know for sure."""
    backchannel_within: Micros = 400 * MS
    """Time for its answer; then the rules decide."""
    backchannel_threshold: Probability = 0.5
    """Probability from which on the classifier's word is: a backchannel."""


class EchoPolicy(Section):
    """The assistant's own speech in the microphone: neither an interruption nor a turn."""

    threshold: Probability = 0.6
    """Correlation of a window with what was played from which on its hops are not the user's voice; 1: no guard by sound."""
    clear: Probability = 0.25
    """A turn with no window above this is certainly not an echo, whatever its words."""
    least_words: Annotated[int, Field(ge=1)] = 3
    """Transcripts of fewer words are never taken for the assistant's own."""
    match: Probability = 0.6
    """Share of a transcript's pairs of words that the assistant has just said too, from which on it is the assistant's."""
    tail: Micros = 400 * MS
    """Time after the end of playback in which speech may still be its echo."""


class FloorPolicy(Section):
    """When something may be said that answers no turn (asked for by `say.requested`)."""

    silence: Micros = 800 * MS
    """Silence of both sides, falling to …"""
    silence_least: Micros = 250 * MS
    """… this, …"""
    silence_decay: Micros = 8 * S
    """… while the request waits so long."""
    freshness: Micros = 60 * S
    """A request older than this is withdrawn."""
    tries: Annotated[int, Field(ge=1, le=10)] = 3
    """Times it is asked for, as long as nothing of it was heard."""
    most: Annotated[int, Field(ge=1, le=64)] = 16
    """Requests that may wait; beyond, the oldest is withdrawn."""


class IdlePolicy(Section):
    """What silence of both sides means; counted from the end of playback. 0 switches off."""

    away_after: Micros = 0
    """Silence after which the user counts as away."""
    prompt_after: Micros = 0
    """Silence after which the assistant says `prompt_text`."""
    prompt_text: str = "Are you still there?"
    """What is said then."""
    prompts_most: Annotated[int, Field(ge=1, le=10)] = 2
    """Prompts until the user says something."""


class ResponsePolicy(Section):
    """What is asked of the language model and the synthesis."""

    system_prompt: str = "You are a friendly voice assistant. Answer in one or two short spoken sentences, without lists or symbols."
    """Goes before the conversation."""
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 48
    """Longest answer."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    """0: the likeliest token each time."""
    seed: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """For temperatures above 0."""
    history_turns: Annotated[int, Field(ge=0, le=200)] = 4
    """Turns of both sides that the model is reminded of."""
    retries: Annotated[int, Field(ge=0, le=5)] = 1
    """Times that a failed generation or synthesis is asked for again."""
    watchdog: Micros = 30 * S
    """Time without any outcome or playback after which a response ends as `timed_out`."""


class LatencyPolicy(Section):
    """The time an outcome is given in a session paced `asap`, after its request (law 7)."""

    endpoint: Micros = 60 * MS
    """Of an endpoint prediction."""
    transcript: Micros = 300 * MS
    """Of a transcript."""
    backchannel: Micros = 100 * MS
    """Of the backchannel classifier."""
    generate: Micros = 400 * MS
    """Of an answer's text."""
    speak: Micros = 250 * MS
    """Of a sentence's speech."""
    work: Micros = 8 * S
    """Of a delegated work."""


class PlaybackPolicy(Section):
    """How often a device that acknowledges playback says how far it has played."""

    ack_interval: Micros = 500 * MS
    """Time between two acknowledgements while something is played."""


class SessionPolicy(Section):
    """How a session ends."""

    drain: Micros = 2 * S
    """Media time after `session.closed` in which open things may still end by themselves."""
    abandoned_after: Micros = 60 * S
    """Time without media or any other observation after which a session ends by itself."""


PROFILES: dict[str, dict[str, Any]] = {
    "patient": {
        "turn.end_silence": "640ms",
        "turn.hold_max": "6s",
        "turn.hold_doubt": "2s",
        "endpoint.threshold": 0.7,
        "endpoint.give_up_after": "1200ms",
    },
    "brisk": {
        "turn.end_silence": "256ms",
        "turn.hold_max": "1500ms",
        "turn.hold_doubt": "640ms",
        "endpoint.give_up_after": "500ms",
    },
    "hard_to_interrupt": {"overlap.pause_after": "500ms", "overlap.interrupt_after": "1800ms"},
    "uninterruptible": {"overlap.interruptible": False},
}
"""Named sets of changes for states and speakers; wished for or switched to by the key `profile` (several: `patient,brisk`)."""


class Policy(Section):
    """The complete policy of a session."""

    vad: VadPolicy = VadPolicy()
    endpoint: EndpointPolicy = EndpointPolicy()
    turn: TurnPolicy = TurnPolicy()
    overlap: OverlapPolicy = OverlapPolicy()
    echo: EchoPolicy = EchoPolicy()
    floor: FloorPolicy = FloorPolicy()
    idle: IdlePolicy = IdlePolicy()
    response: ResponsePolicy = ResponsePolicy()
    latency: LatencyPolicy = LatencyPolicy()
    playback: PlaybackPolicy = PlaybackPolicy()
    session: SessionPolicy = SessionPolicy()
    work: WorkPolicy = WorkPolicy()

    def with_changes(self, changes: dict[str, Any]) -> "Policy":
        """This policy with dotted keys replaced, e.g. `{"turn.hold_max": "2s"}`.

        Raises:
            BadInput: no such key, or a value that does not fit it.
        """
        tree = self.model_dump()
        for key, value in _spelt_out(changes):
            section, _, name = key.partition(".")
            if not isinstance(tree.get(section), dict) or name not in tree[section]:
                known = ", ".join(f"{s}.{n}" for s, names in tree.items() for n in names)
                raise BadInput(f"no policy key {key!r}; there are: {known}")
            tree[section][name] = value
        try:
            return Policy.model_validate(tree)
        except ValidationError as error:
            first = error.errors()[0]
            raise BadInput(
                f"policy {'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r})"
            ) from None

    def with_accepted(self, changes: dict[str, Any]) -> "Policy":
        """Like `with_changes`, but a change that does not fit changes nothing."""
        policy = self
        for key, value in changes.items():
            try:
                policy = policy.with_changes({key: value})
            except BadInput:
                continue
        return policy


def _spelt_out(changes: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The changes with `profile` replaced by what it stands for; what is named beside it comes after and wins."""
    for name in str(changes.get("profile", "")).split(","):
        if name.strip() not in PROFILES and name.strip():
            raise BadInput(f"no profile {name.strip()!r}; there are: {', '.join(PROFILES)}")
        yield from PROFILES.get(name.strip(), {}).items()
    yield from ((key, value) for key, value in changes.items() if key != "profile")


Pacing = Literal["live", "asap"]
