"""Media to samples to windows: no chunking matters, no sample drifts, nothing odd is heard as sound."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from operators.window import (
    RESET_AFTER_WINDOWS,
    AudioRing,
    ChannelAssembler,
    EpochStarted,
    Gap,
    Piece,
    Rejected,
    Samples,
    VadResets,
    Window,
    Windower,
    levels_db,
    samples_to_us,
    us_to_samples,
)
from schemas.envelope import Pcm

pytestmark = pytest.mark.pure

RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)


def noise(count: int, channels: int = 1, seed: int = 0) -> NDArray[np.int16]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, channels)) * 6000).clip(-32768, 32767).astype(np.int16)


def chunks(
    audio: NDArray[np.int16], rate: int, sizes: Iterable[int]
) -> Iterator[tuple[int, int, Pcm]]:
    """(sequence, media time, PCM) of audio [samples, channels] cut into these sizes, round and round."""
    at = 0
    for number, size in enumerate(cycle(sizes)):
        if at >= len(audio):
            return
        part = audio[at : at + size]
        yield number, at * 1_000_000 // rate, Pcm(rate, audio.shape[1], part.tobytes())
        at += size


def assemble(audio: NDArray[np.int16], rate: int, sizes: Iterable[int]) -> list[Piece]:
    assembler = ChannelAssembler()
    pieces: list[Piece] = []
    for number, at_us, pcm in chunks(audio, rate, sizes):
        pieces += assembler.feed("mic", str(number), number, at_us, pcm)
    return pieces + assembler.flush()


def samples_of(pieces: Sequence[Piece]) -> NDArray[np.int16]:
    """All samples of one epoch; each piece begins where the one before ended."""
    parts, at = [], 0
    for piece in pieces:
        if isinstance(piece, Samples):
            assert piece.first_sample == at
            at += len(piece.samples)
            parts.append(piece.samples)
    return np.concatenate(parts) if parts else np.zeros(0, np.int16)


def windows_of(pieces: Sequence[Piece]) -> list[Window]:
    windower = Windower()
    done = [w for p in pieces if isinstance(p, Samples) for w in windower.feed(p)]
    return done + windower.finish()


def as_bytes(windows: Sequence[Window]) -> list[tuple[int, int, int, bytes]]:
    return [(w.epoch, w.first_sample, w.padded, w.audio.tobytes()) for w in windows]


def feed(
    assembler: ChannelAssembler,
    number: int | None,
    at_ms: float | None,
    ms: float = 20,
    *,
    source: str = "mic",
    id: str = "",
    rate: int = 16_000,
    channels: int = 1,
    pcm: bytes | None = None,
) -> list[Piece]:
    data = noise(round(rate * ms / 1000), channels).tobytes() if pcm is None else pcm
    at_us = None if at_ms is None else round(at_ms * 1000)
    return assembler.feed(
        source, id or f"{source}{number}", number, at_us, Pcm(rate, channels, data)
    )


# --- chunking


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", RATES)
def test_usual_chunk_sizes_give_the_windows_of_the_whole_file(rate: int, channels: int) -> None:
    audio = noise(rate * 2 + 37, channels)
    whole = as_bytes(windows_of(assemble(audio, rate, [len(audio)])))
    for ms in (10, 20, 21.3, 100, 1000):
        cut = assemble(audio, rate, [round(rate * ms / 1000)])
        assert as_bytes(windows_of(cut)) == whole, f"{ms} ms"


@settings(max_examples=60, deadline=None)
@given(
    rate=st.sampled_from(RATES),
    channels=st.sampled_from([1, 2]),
    count=st.integers(1, 30_000),
    sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=12),
)
def test_any_chunking_gives_the_windows_of_the_whole_file(
    rate: int, channels: int, count: int, sizes: list[int]
) -> None:
    if max(sizes) < 50:
        sizes = [*sizes, 400]
    audio = noise(count, channels)
    whole = windows_of(assemble(audio, rate, [count]))
    assert as_bytes(windows_of(assemble(audio, rate, sizes))) == as_bytes(whole)


@given(count=st.integers(0, 8_000), sizes=st.lists(st.integers(1, 4_000), min_size=1, max_size=6))
def test_windows_hold_every_sample_once(count: int, sizes: list[int]) -> None:
    audio = noise(count)
    windows = windows_of(assemble(audio, 16_000, sizes))
    assert all(len(w.audio) == 1536 for w in windows)
    assert [w.first_sample for w in windows] == [1536 * i for i in range(len(windows))]
    held = np.concatenate([w.audio for w in windows] or [np.zeros(0, np.int16)])
    assert np.array_equal(held[:count], audio[:, 0]) and not held[count:].any()
    assert sum(w.padded for w in windows) == len(held) - count


def test_16_khz_mono_passes_bit_by_bit() -> None:
    audio = noise(5000)
    audio[:4, 0] = (32767, -32768, 1, -1)
    assert np.array_equal(samples_of(assemble(audio, 16_000, [333])), audio[:, 0])


def test_stereo_is_averaged_without_overflow() -> None:
    audio = np.array([[32767, 32767], [-32768, -32768], [1000, 0], [5, -5]], np.int16)
    assert samples_of(assemble(audio, 16_000, [3])).tolist() == [32767, -32768, 500, 0]


@pytest.mark.parametrize("rate", RATES)
def test_resampling_keeps_the_length(rate: int) -> None:
    audio = noise(rate * 3)
    assert abs(len(samples_of(assemble(audio, rate, [rate // 10]))) - 48_000) <= 1


def test_full_scale_is_clipped_not_wrapped() -> None:
    square = np.repeat(np.array([[32767], [-32768]] * 200, np.int16), 60, axis=0)
    made = samples_of(assemble(square, 48_000, [480])).astype(int)
    # Gibbs' ripple overshoots; a wrapped sample would jump from one rail to the other and back.
    inner = made[20:-20]
    middle = inner[1:-1][(inner[:-2] > 20_000) & (inner[2:] > 20_000)]
    assert middle.min() > 0


# --- epochs


def test_first_media_begins_an_epoch() -> None:
    started = feed(ChannelAssembler(), 0, 5)[0]
    assert started == EpochStarted(0, 16_000, 1, None, None, 5_000, "first")


def test_another_rate_or_channel_count_begins_an_epoch_with_its_own_count() -> None:
    a = ChannelAssembler()
    feed(a, 0, 0)
    started, samples = feed(a, 1, 20, rate=48_000, ms=200)
    assert started == EpochStarted(1, 48_000, 1, 16_000, 1, 20_000, "format")
    assert isinstance(samples, Samples) and samples[:2] == (1, 0)
    tail, started, _ = feed(a, 2, 220, channels=2)
    assert isinstance(tail, Samples) and tail.epoch == 1
    assert len(samples.samples) + len(tail.samples) == 3200
    assert started == EpochStarted(2, 16_000, 2, 48_000, 1, 220_000, "format")


def test_a_new_source_begins_an_epoch_and_the_old_one_is_late_from_then_on() -> None:
    a = ChannelAssembler()
    feed(a, 0, 0, source="one")
    assert feed(a, 0, 20, source="two")[0] == EpochStarted(
        1, 16_000, 1, 16_000, 1, 20_000, "source"
    )
    assert feed(a, 0, 0, source="one") == []
    [late] = feed(a, 1, 20, source="one")
    assert isinstance(late, Rejected) and late.reason == "late" and "replaced by two" in late.detail
    assert [type(p) for p in feed(a, 1, 40, source="two")] == [Samples]


def test_media_after_a_flush_begins_an_epoch() -> None:
    a = ChannelAssembler()
    feed(a, 0, 0)
    a.flush()
    assert feed(a, 1, 20)[0] == EpochStarted(1, 16_000, 1, 16_000, 1, 20_000, "gap")


# --- gaps


def test_a_gap_becomes_silence_of_its_length() -> None:
    a = ChannelAssembler()
    feed(a, 0, 0)
    gap, silence, samples = feed(a, 1, 270)
    assert gap == Gap(0, 320, "lost", 250_000, True)
    assert isinstance(silence, Samples) and silence[:2] == (0, 320)
    assert len(silence.samples) == 4000 and not silence.samples.any()
    assert isinstance(samples, Samples) and samples[:2] == (0, 4320)


def test_jitter_within_the_tolerance_is_no_gap() -> None:
    a = ChannelAssembler()
    feed(a, 0, 0)
    for number, at_ms in ((1, 39), (2, 21), (3, 79.9)):
        assert [type(p) for p in feed(a, number, at_ms)] == [Samples]


def test_a_gap_too_long_to_fill_begins_an_epoch_at_the_new_time() -> None:
    a = ChannelAssembler()
    feed(a, 0, 0)
    started, gap, samples = feed(a, 1, 3020)
    assert started == EpochStarted(1, 16_000, 1, 16_000, 1, 3_020_000, "gap")
    assert gap == Gap(1, 0, "lost", 3_000_000, False)
    assert isinstance(samples, Samples) and samples[:2] == (1, 0)


def test_a_thousand_gaps_do_not_drift() -> None:
    a = ChannelAssembler()
    pieces: list[Piece] = []
    period_ms, said_ms = 420.37, 331.1
    for number in range(1000):
        pieces += feed(a, number, number * period_ms, said_ms, rate=22_050)
    fills = [p for p in pieces if isinstance(p, Gap)]
    assert len(fills) == 999 and all(g.filled for g in fills)
    samples_of(pieces)  # contiguous
    ends = [p.first_sample + len(p.samples) for p in pieces if isinstance(p, Samples)]
    assert abs(ends[-1] - (999 * period_ms + said_ms) * 16) < 1000  # the filter holds the rest back
    for number, gap in enumerate(fills):
        end = gap.first_sample + us_to_samples(gap.missing_us)
        assert abs(end - (number + 1) * period_ms * 16) <= 1


def test_a_sequence_gap_without_media_times_is_reported() -> None:
    a = ChannelAssembler()
    feed(a, 0, None)
    assert feed(a, 3, None)[0] == Gap(0, 320, "sequence", 0, False)
    [late] = feed(a, 2, None)
    assert isinstance(late, Rejected) and late.reason == "late"
    assert feed(a, 3, None) == []


def test_numbers_may_have_holes_where_media_times_have_none() -> None:
    a = ChannelAssembler()
    feed(a, 0, 0)
    assert [type(p) for p in feed(a, 7, 20)] == [Samples]


# --- repeats, late and unusable records


def test_repeats_are_dropped_with_and_without_numbers() -> None:
    a = ChannelAssembler()
    feed(a, 0, 0)
    assert feed(a, 0, 0) == []
    b = ChannelAssembler()
    feed(b, None, 0, id="x")
    feed(b, None, 20, id="y")
    assert feed(b, None, 0, id="x") == []


def test_media_time_that_runs_backwards_is_late_without_numbers() -> None:
    a = ChannelAssembler()
    feed(a, None, 0, 100, id="a")
    [late] = feed(a, None, 50, id="b")
    assert isinstance(late, Rejected) and late.reason == "late"
    assert [type(p) for p in feed(a, None, 100, id="c")] == [Samples]


def test_numbered_media_is_in_order_whatever_its_times_say() -> None:
    a = ChannelAssembler()
    feed(a, 0, 0, 100)
    assert [type(p) for p in feed(a, 1, 50)] == [Samples]


@pytest.mark.parametrize(
    ("pcm", "what"),
    [
        (b"\0" * 321, "no multiple of 2"),
        (b"fLaC\0\0\0\x22" + b"\0" * 40, "FLAC"),
        (b"OggS\0\2" + b"\0" * 40, "Ogg"),
        (b"ID3\4\0\0" + b"\0" * 40, "ID3"),
    ],
)
def test_what_is_not_pcm_is_rejected(pcm: bytes, what: str) -> None:
    a = ChannelAssembler()
    [rejected] = feed(a, 0, 0, pcm=pcm)
    assert (
        isinstance(rejected, Rejected) and rejected.reason == "format" and what in rejected.detail
    )
    assert isinstance(feed(a, 1, 0)[0], EpochStarted)


def test_other_formats_than_mono_and_stereo_at_a_usable_rate_are_rejected() -> None:
    for rate, channels in ((16_000, 3), (100, 1)):
        [rejected] = feed(ChannelAssembler(), 0, 0, rate=rate, channels=channels)
        assert isinstance(rejected, Rejected) and rejected.reason == "format"


@pytest.mark.parametrize("at_us", [-1, 1_764_000_000_000_000])
def test_a_media_time_of_another_clock_is_rejected(at_us: int) -> None:
    [rejected] = feed(ChannelAssembler(), 0, at_us / 1000)
    assert isinstance(rejected, Rejected) and rejected.reason == "invalid"


# --- resets, level, ring


def window(first: int = 1536) -> Window:
    return Window(0, first, np.zeros(1536, np.int16))


def test_the_state_is_reset_after_confirmed_silence_only() -> None:
    resets = VadResets()
    said = [True]
    assert resets.before(window(0))
    for count in range(1, 60):
        resets.after((0.02, 0.02, 0.3 if count == 5 else 0.02))
        said.append(resets.before(window()))
    at = [i for i, reset in enumerate(said) if reset]
    assert at == [0, 5 + RESET_AFTER_WINDOWS, 5 + 2 * RESET_AFTER_WINDOWS]


def test_a_window_without_an_answer_resets_the_next() -> None:
    resets = VadResets()
    resets.before(window(0))
    resets.after(None)
    assert resets.before(window())


def test_levels() -> None:
    rows = np.stack([np.zeros(1536), np.full(1536, 16384), np.full(1536, -32768)]).astype(np.int16)
    assert levels_db(rows) == [-100.0, -6.0, 0.0]


def test_the_ring_gives_copies_and_forgets_the_oldest() -> None:
    ring = AudioRing(3 * 16_000)
    audio = noise(10 * 16_000)[:, 0]
    for at in range(0, len(audio), 1600):
        ring.add(0, at, audio[at : at + 1600])
    span = ring.span(0, 130_000, 150_000)
    assert np.array_equal(span, audio[130_000:150_000])
    span[:] = 0
    assert np.array_equal(ring.span(0, 130_000, 150_000), audio[130_000:150_000])
    assert not ring.span(0, 160_000, 160_100).any()
    with pytest.raises(LookupError):
        ring.span(0, 0, 100)
    ring.add(1, 0, audio[:100])
    assert np.array_equal(ring.span(1, 0, 100), audio[:100])


def test_samples_and_microseconds() -> None:
    assert samples_to_us(1536) == 96_000
    assert all(us_to_samples(samples_to_us(n)) == n for n in range(5000))
