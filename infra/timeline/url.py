"""Timeline URLs: taken apart, every part checked, secrets never shown.

`urllib.parse` reads the parts; what it would silently accept (a misspelt query key, a doubled one) is an error here,
because a setting that is ignored is found out only when it is missed.
"""

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from schemas.errors import BadInput

_SECRET_WORDS = ("password", "token", "secret")
_MAX_PARTITIONS = 10_000


def _is_secret(name: str) -> bool:
    return any(word in name for word in _SECRET_WORDS)


@dataclass
class TimelineUrl:
    """A URL taken apart. Openers take what they know from `query`, then call `finish`."""

    shown: str
    scheme: str
    authority: str
    path: str
    query: dict[str, str] = field(repr=False)
    _asked: list[str] = field(default_factory=list)

    def take(self, name: str) -> str | None:
        self._asked.append(name)
        return self.query.pop(name, None)

    def take_choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.take(name)
        if value is None:
            return default
        if value not in choices:
            raise self.bad(f"{name} is {value!r}; use one of {', '.join(choices)}")
        return value

    def take_partitions(self) -> int | None:
        value = self.take("partitions")
        if value is None:
            return None
        # isdecimal alone would let other scripts' digits through
        if not (value.isascii() and value.isdecimal() and 1 <= int(value[:9]) <= _MAX_PARTITIONS):
            raise self.bad(
                f"partitions is {value!r}; use a whole number from 1 to {_MAX_PARTITIONS}"
            )
        return int(value)

    def finish(self) -> None:
        """Refuse what no opener asked for."""
        if self.query:
            known = ", ".join(sorted(self._asked)) or "none"
            raise self.bad(f"unknown setting {min(self.query)!r}; {self.scheme}:// knows {known}")

    def bad(self, what: str) -> BadInput:
        return BadInput(f"timeline {self.shown}: {what}")


def parse_url(url: str, known: tuple[str, ...]) -> TimelineUrl:
    forms = ", ".join(f"{scheme}://" for scheme in known)
    scheme, mark, _rest = url.partition("://")
    if not mark:
        raise BadInput(f"timeline {url!r} is not a URL; use one of {forms} (sqlite:///path.db)")
    if scheme not in known:
        raise BadInput(
            f"timeline {scheme}://…: unknown kind of timeline {scheme!r}; use one of {forms}"
        )
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(
            parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), errors="strict"
        )
    except ValueError as error:
        raise BadInput(f"timeline {scheme}://…: not a valid URL ({error})") from error
    if "@" in parts.netloc:
        raise BadInput(
            f"timeline {scheme}://…: a user name or password does not belong before the host; "
            "set VENUS_KAFKA_SASL_PLAIN_USERNAME and VENUS_KAFKA_SASL_PLAIN_PASSWORD"
        )
    query = dict(pairs)
    shown = _shown(scheme, parts.netloc, parts.path, pairs)
    if len(query) != len(pairs):
        raise BadInput(f"timeline {shown}: a setting is given twice")
    if parts.fragment:
        raise BadInput(f"timeline {shown}: '#' has no meaning here; write it as %23")
    return TimelineUrl(shown, scheme, unquote(parts.netloc), unquote(parts.path), query)


def _shown(scheme: str, netloc: str, path: str, pairs: list[tuple[str, str]]) -> str:
    settings = "&".join(f"{name}={'***' if _is_secret(name) else value}" for name, value in pairs)
    return f"{scheme}://{netloc}{path}" + (f"?{settings}" if settings else "")
