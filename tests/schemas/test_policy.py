"""Policy changes as people and devices write them: dotted keys, units, and one clear line for what does not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import parse_duration
from schemas.errors import BadInput
from schemas.policy import Policy

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2s", 2_000_000),
        ("320ms", 320_000),
        ("320 ms", 320_000),
        (" .5s ", 500_000),
        ("1.5 min", 90_000_000),
        ("1m", 60_000_000),
        ("1h", 3_600_000_000),
        ("7us", 7),
        ("0s", 0),
        (1_500_000, 1_500_000),
    ],
)
def test_a_duration_is_written_with_a_unit(text: object, micros: int) -> None:
    assert Policy().with_changes({"turn.hold_max": text}).turn.hold_max == micros


@given(st.integers(0, 7 * 24 * 3_600_000_000))
def test_a_duration_in_us_is_exact(micros: int) -> None:
    assert parse_duration(f"{micros}us") == micros


def test_changes_replace_what_they_name_and_nothing_else() -> None:
    changed = Policy().with_changes({"vad.activation": "0.7", "response.max_tokens": 12})
    assert (changed.vad.activation, changed.response.max_tokens) == (0.7, 12)
    assert changed.with_changes({"vad.activation": 0.5, "response.max_tokens": 48}) == Policy()
    assert Policy().with_changes({"turn.end_silence": " 0 "}).turn.end_silence == 0


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("turn.hold_maximum", "2s", "no policy key 'turn.hold_maximum'; there are: vad.activation"),
        ("turn", "2s", "no policy key 'turn'"),
        ("hold_max", "2s", "no policy key 'hold_max'"),
        ("turn.hold_max.x", "2s", "no policy key 'turn.hold_max.x'"),
        ("", 1, "no policy key ''"),
        ("turn.hold_max", "2 parsecs", "'2 parsecs' is not a duration; write a number and a unit"),
        ("turn.hold_max", "2", "'2' is not a duration"),
        ("turn.hold_max", "-2s", "'-2s' is not a duration"),
        ("turn.hold_max", -2, "policy turn.hold_max: Input should be greater than or equal to 0"),
        ("turn.hold_max", None, "policy turn.hold_max:"),
        ("turn.hold_max", [1], "policy turn.hold_max:"),
        ("turn.hold_max", 1.5, "policy turn.hold_max:"),
        ("vad.activation", 1.5, "policy vad.activation: Input should be less than or equal to 1"),
        ("vad.activation", "loud", "policy vad.activation: Input should be a valid number"),
        ("vad.activation", float("nan"), "policy vad.activation:"),
        ("response.max_tokens", 0, "policy response.max_tokens:"),
    ],
)
def test_a_change_that_does_not_fit_is_one_clear_line(key: str, value: object, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        Policy().with_changes({key: value})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert Policy().with_accepted({key: value, "turn.longest": "30s"}) == Policy().with_changes(
        {"turn.longest": "30s"}
    )


@pytest.mark.parametrize("value", ["9" * 400 + "s", "9" * 30 + "s", 10**30, "8 h" * 3, "200h"])
def test_a_duration_that_no_log_could_hold_is_refused(value: object) -> None:
    """A device's wish must not become a number that cannot be written again: perception would die of it at every restart."""
    with pytest.raises(BadInput, match=r"turn\.hold_max"):
        Policy().with_changes({"turn.hold_max": value})


def test_a_profile_is_a_set_of_changes_and_what_stands_beside_it_wins() -> None:
    policy = Policy().with_changes({"turn.hold_max": "4s", "profile": "patient"})
    assert (policy.turn.hold_max, policy.turn.end_silence) == (4_000_000, 640_000)
    with pytest.raises(BadInput, match="no profile 'lazy'; there are: patient"):
        Policy().with_changes({"profile": "lazy"})


def test_a_threshold_that_a_newer_release_has_added_may_be_read_but_not_wished() -> None:
    tree = Policy().model_dump()
    tree["turn"]["telepathy"] = 1
    tree["work"]["telepathy"] = 1
    tree["dreams"] = {"lucid": True}
    assert Policy.model_validate(tree) == Policy()
    with pytest.raises(BadInput, match="telepathy"):
        Policy().with_changes({"turn.telepathy": 1})
