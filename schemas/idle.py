"""The user's presence: away after a long silence of both sides, until anything comes from them again."""

from schemas.base import Data, Kind, Writer, event


@event("user.away", Kind.DECISION, Writer.CONVERSATION)
class UserAway(Data):
    """Neither side has spoken since `silent_since_us` (for the assistant: been heard), and nothing is being worked on."""

    silent_since_us: int


@event("user.returned", Kind.DECISION, Writer.CONVERSATION)
class UserReturned(Data):
    """The user speaks or types again, or the session ends."""

    away_us: int
