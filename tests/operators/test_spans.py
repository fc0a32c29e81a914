"""Delegate spans: the capture rules, in text cut anywhere and in token ids."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.spans import (
    PROTOCOL_TOKENS,
    Captured,
    Found,
    IdSpans,
    Malformed,
    Opened,
    Public,
    TextSpans,
    public_text,
    without_tokens,
)

pytestmark = pytest.mark.pure


def parse(text: str, cuts: list[int] | None = None, whole: bool = True) -> list[Found[str]]:
    spans = TextSpans()
    found: list[Found[str]] = []
    bounds = [0, *sorted(cuts or []), len(text)]
    for start, end in pairwise(bounds):
        found += spans.feed(text[start:end])
    return found + spans.end(whole)


def told(found: list[Found[str]]) -> list[tuple[str, str]]:
    """What was found, public text joined."""
    out: list[tuple[str, str]] = []
    for part in found:
        match part:
            case Public(piece):
                if out and out[-1][0] == "public":
                    out[-1] = ("public", out[-1][1] + piece)
                else:
                    out.append(("public", piece))
            case Opened():
                out.append(("opened", ""))
            case Captured(content):
                out.append(("captured", "".join(content)))
            case Malformed(reason, content):
                out.append((reason, "".join(content)))
    return out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("just words < and > |", [("public", "just words < and > |")]),
        (
            "One moment.<delegate>weather in Paris</delegate> So,",
            [
                ("public", "One moment."),
                ("opened", ""),
                ("captured", "weather in Paris"),
                ("public", " So,"),
            ],
        ),
        # A span crosses units: what stands between them is skipped.
        (
            "<delegate>weather<|chunk_eos|></unit><unit><|speak|> in Paris</delegate>",
            [("opened", ""), ("captured", "weather in Paris")],
        ),
        ("<delegate>a task<|turn_eos|>", [("opened", ""), ("captured", "a task")]),
        (
            "<delegate>a <delegate>b</delegate> c</delegate>d",
            [("opened", ""), ("nested", "a b c"), ("public", "d")],
        ),
        (
            "<delegate>a <backend>x</delegate>b",
            [("opened", ""), ("protocol_token", "a x"), ("public", "b")],
        ),
        ("stray</delegate> close", [("public", "stray close")]),
        ("a<|listen|>b<backend>c", [("public", "abc")]),
        (
            "<delegate>1</delegate><delegate>2</delegate>",
            [("opened", ""), ("captured", "1"), ("opened", ""), ("captured", "2")],
        ),
    ],
)
def test_what_is_public_and_what_a_span_says(text: str, expected: list[tuple[str, str]]) -> None:
    assert told(parse(text)) == expected


def test_a_span_that_is_broken_off_is_no_request() -> None:
    assert told(parse("Hm.<delegate>book a", whole=False)) == [
        ("public", "Hm."),
        ("opened", ""),
        ("interrupted", "book a"),
    ]
    assert told(parse("Hm.<dele", whole=False)) == [("public", "Hm.<dele")]


pieces = st.lists(
    st.sampled_from([*PROTOCOL_TOKENS, "a", " b", "<", "</", "<dele", "|>", "é😀"]), max_size=14
)


@given(pieces, st.lists(st.integers(0, 120), max_size=8), st.booleans())
def test_no_cut_changes_what_is_found(parts: list[str], cuts: list[int], whole: bool) -> None:
    text = "".join(parts)
    once = parse(text, whole=whole)
    assert told(parse(text, [c for c in cuts if c < len(text)], whole)) == told(once)
    assert told(parse(text, list(range(len(text))), whole)) == told(once)
    shown = public_text(once)
    assert not any(token in shown for token in PROTOCOL_TOKENS) or "<" in "".join(
        p for p in parts if p not in PROTOCOL_TOKENS
    )
    opened = sum(isinstance(f, Opened) for f in once)
    assert opened == sum(isinstance(f, Captured | Malformed) for f in once)


def test_ids_are_read_as_ids_and_speech_is_muted_to_the_end_of_the_turn() -> None:
    spans = IdSpans(
        {100: "<delegate>", 101: "</delegate>", 102: "<|turn_eos|>", 103: "<|chunk_eos|>"}
    )
    assert spans.feed([1, 2]) == [Public(1), Public(2)] and not spans.muted
    assert spans.feed([100, 3, 103]) == [Opened()] and spans.muted
    assert spans.feed([4, 101]) == [Captured((3, 4))]
    assert spans.feed([5]) == [Public(5)] and spans.muted
    assert spans.feed([102]) == [] and not spans.muted
    spans.feed([100, 7])
    assert spans.cut() == [Malformed("interrupted", (7,))]


@given(
    st.lists(
        st.sampled_from([*PROTOCOL_TOKENS, "<dele", "gate>", "<|sp", "eak|>", "x"]), max_size=20
    )
)
def test_no_token_survives_by_being_nested(parts: list[str]) -> None:
    assert not any(token in without_tokens("".join(parts)) for token in PROTOCOL_TOKENS)
