"""Ids that are derived, never drawn (law 4): the same inputs give the same ids, on any machine and in any replay.

The hash is BLAKE2b-128 over the parts, each preceded by its length, so that no two lists of parts collide by concatenation.
The operator names that go into it are part of the log's format: renaming an operator makes recorded sessions diverge.
"""

from hashlib import blake2b


def derived_id(kind: str, *parts: str | int) -> str:
    """32 hex digits that depend on `kind` and every part."""
    text = "\x1f".join((kind, *map(str, parts)))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def decision_id(session: str, cause_input: str, operator: str, index: int) -> str:
    """The id of the `index`-th decision that `operator` took while the input `cause_input` was worked off."""
    return derived_id("decision", session, cause_input, operator, index)


def window_id(session: str, channel: str, epoch: int, first_sample: int) -> str:
    """The id of a perception window: its place in the 16 kHz samples of a channel's format epoch."""
    return derived_id("window", session, channel, epoch, first_sample)


def outcome_id(request: str, attempt: int, type_name: str, index: int) -> str:
    """The id of the `index`-th outcome of a type that the given attempt at a request returned."""
    return derived_id("outcome", request, attempt, type_name, index)


def observation_id(session: str, source: str, sequence: int, type_name: str) -> str:
    """The id that our own devices give their records; foreign ones may use any id that is unique for their source."""
    return derived_id("observation", session, source, sequence, type_name)
