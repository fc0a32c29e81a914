"""Cases A: faults of audio ingestion and voice activity in other systems. The rows about turns (A14, A22, A23) are with
the operators; here is what perception owes them.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from infra.triton.client import ModelRejected, VadClient
from infra.triton.server import LocalTriton
from operators.window import AudioRing, ChannelAssembler, EpochStarted, Gap, Samples, Windower
from schemas.envelope import Event, Pcm
from tests.support.perceive import Bench, speech
from tests.support.triton import recording, triton

__all__ = ["recording", "triton"]

pytestmark = pytest.mark.case

Audio = NDArray[np.int16]


@pytest.fixture
def vad(triton: LocalTriton) -> Iterator[VadClient]:
    with VadClient(triton.url) as client:
        yield client


def tone(hz: float, seconds: float, rate: int, channels: int = 1) -> Audio:
    wave = np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate) * 12_000
    return np.repeat(wave[:, None], channels, axis=1).astype(np.int16)


def silence(seconds: float) -> Audio:
    return np.zeros((round(seconds * 16_000), 1), np.int16)


def heard(
    audio: Audio, rate: int = 16_000, model: VadClient | None = None, **play: object
) -> Bench:
    """A session in which this was played, closed and perceived; by the stand-in unless there is a model."""
    b = Bench()
    if model is not None:
        b.vad = model  # type: ignore[assignment]
        b.start()
    b.open()
    b.close(at_us=b.play(audio, rate, **play))  # type: ignore[arg-type]
    b.run()
    return b


def probabilities(windows: Sequence[Event]) -> list[float]:
    return [p for w in windows for p in w.data.probabilities or ()]


def facts(windows: Sequence[Event]) -> list[object]:
    return [(w.id, w.mediatime, w.data) for w in windows]


def samples_of(b: Bench) -> Audio:
    """What the session's media becomes, whole."""
    assembler, parts = ChannelAssembler(), []
    from schemas.cloudevents import decode
    from schemas.record import Lane

    for p in range(b.timeline.partitions):
        for record in b.timeline.scan(Lane.MEDIA, p):
            e = decode(record)
            for piece in assembler.feed(e.source, e.id, e.sequence, e.mediatime, e.data):
                if isinstance(piece, Samples):
                    parts.append(piece.samples)
    parts += [p.samples for p in assembler.flush() if isinstance(p, Samples)]
    return np.concatenate(parts)


@pytest.mark.triton
def test_a1_two_transitions_in_one_chunk(
    vad: VadClient,
    recording: Callable[[str], Audio],
) -> None:
    spoken = recording("check_order_12345.wav")[8_000 : 8_000 + 10_240, None]
    audio = np.concatenate([spoken, silence(0.64), spoken])
    whole = heard(audio, chunk=len(audio), model=vad)
    small = heard(audio, chunk=160, model=vad)
    assert facts(whole.windows()) == facts(small.windows())
    loud = [p > 0.5 for p in probabilities(whole.windows())]
    assert any(loud[:20]) and not any(loud[30:38]) and any(loud[42:])


def test_a2_all_windows_of_a_buffer_are_analysed_and_nothing_piles_up() -> None:
    b = Bench()
    b.open()
    for at in range(60 * 50):
        b.play(speech(0.02, seed=at), chunk=320, start_us=at * 20_000)
        if at % 5 == 4:
            b.run()
            received = (at + 1) * 320
            done = sum(b.vad.batches) * 1536
            assert 0 <= received - done < 1536
    [session] = b.perception._sessions.values()
    assert all(not channel.work for channel in session.channels.values())


@pytest.mark.triton
@pytest.mark.parametrize("samples", [480, 512, 640, 1440, 1600])
def test_a4_another_number_of_samples_is_refused(vad: VadClient, samples: int) -> None:
    audio = np.zeros((1, samples), np.int16)
    context, state = np.zeros((1, 64), np.float32), np.zeros((1, 2, 128), np.float32)
    with pytest.raises(ModelRejected):
        vad.infer(audio, context, state)


@pytest.mark.parametrize("chunk", [480, 512])
def test_a5_thirty_milliseconds_are_counted_in_samples(chunk: int) -> None:
    """Whether a "30 ms" chunk has 480 samples or 512: time is what the samples say."""
    windows = heard(speech(1.92), chunk=chunk).windows()
    assert [w.data.start_us for w in windows] == [96_000 * i for i in range(20)]
    assert facts(windows) == facts(heard(speech(1.92)).windows())


def test_a7_a_stereo_chunk_is_mixed_down_though_its_rate_needs_no_change() -> None:
    audio = np.concatenate([tone(440, 1, 16_000), np.zeros((16_000, 1), np.int16)], axis=1)
    mixed = samples_of(heard(audio))
    assert len(mixed) == 16_000
    assert np.array_equal(mixed, audio[:, 0] >> 1)


def test_a8_the_channel_count_of_the_header_is_the_payloads() -> None:
    b = Bench()
    b.open()
    odd = np.zeros(161, np.int16).tobytes()  # no whole number of stereo frames
    b.put("s", Pcm(16_000, 2, odd), 0)
    [rejected] = [e for e in b.run() if e.type == "event.rejected"]
    assert rejected.data.reason == "format" and "multiple of 4" in rejected.data.detail


def test_a10_silence_is_counted_in_whole_samples() -> None:
    assembler = ChannelAssembler()
    pcm = Pcm(22_050, 1, b"\1\0" * 2205)
    assembler.feed("d", "a", 0, 0, pcm)
    pieces = assembler.feed("d", "b", 1, 350_000, pcm)
    [gap] = [p for p in pieces if isinstance(p, Gap)]
    assert gap.filled and abs(gap.missing_us - 250_000) <= 63
    assert next(p for p in pieces if isinstance(p, Samples) and not p.samples.any())


@pytest.mark.parametrize("rate", [16_000, 8_000])
def test_a11_a_wav_header_is_stripped_where_it_agrees_and_refused_where_not(rate: int) -> None:
    import io
    import wave

    audio = speech(0.5)
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(audio.tobytes())
    b = Bench()
    b.open()
    b.put("s", Pcm(16_000, 1, file.getvalue()), 0)
    b.run()
    if rate == 16_000:
        assert facts(b.windows()) == facts(heard(audio[:7680]).windows())
    else:
        [rejected] = b.written("s", "event.rejected")
        assert "WAV" in rejected.data.detail and not b.windows()


def test_a13_what_is_handed_out_is_a_copy_of_exactly_the_length_asked_for() -> None:
    ring = AudioRing()
    audio = speech(1)[:, 0]
    ring.add(0, 0, audio)
    before = ring.span(0, 8_000, 16_000)
    assert len(before) == 8_000
    kept = before.copy()
    ring.add(0, 8_000, np.zeros(8_000, np.int16))
    audio[:] = 1
    assert np.array_equal(before, kept)


def test_a14_the_audio_before_an_onset_can_still_be_had() -> None:
    ring = AudioRing()
    audio = speech(60)[:, 0]
    ring.add(0, 0, audio)
    onset = 50 * 16_000
    assert np.array_equal(ring.span(0, onset - 8_000, onset), audio[onset - 8_000 : onset])


def test_a16_a_length_that_is_no_multiple_of_a_window_is_padded() -> None:
    windows = heard(speech(1)[:15_999]).windows()
    assert len(windows) == 11 and windows[-1].mediatime == 11 * 96_000


@pytest.mark.triton
@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_a17_streaming_is_the_offline_result(
    vad: VadClient,
    recording: Callable[[str], Audio],
    rate: int,
) -> None:
    audio = recording("two_speakers.wav")[: 10 * 16_000, None]
    streamed = heard(audio, rate, chunk=rate // 50, model=vad)
    whole = heard(audio, rate, chunk=len(audio), model=vad)
    assert facts(streamed.windows()) == facts(whole.windows())


@pytest.mark.triton
def test_a19_after_a_minute_of_silence_speech_is_still_heard(
    vad: VadClient,
    recording: Callable[[str], Audio],
) -> None:
    spoken = recording("check_order_12345.wav")[:, None]
    late = heard(np.concatenate([silence(70.56), spoken]), model=vad).windows()
    soon = heard(np.concatenate([silence(2.016), spoken]), model=vad).windows()
    assert probabilities(late)[-3 * 20 :] == probabilities(soon)[-3 * 20 :]
    resets = [i for i, w in enumerate(late) if w.data.reset]
    assert resets[:3] == [0, 21, 42]
    quiet = probabilities(late[: resets[-1]])
    assert max(quiet) < 0.1


@pytest.mark.triton
def test_a19_there_is_no_reset_inside_speech(
    vad: VadClient,
    recording: Callable[[str], Audio],
) -> None:
    windows = heard(recording("two_speakers.wav")[:, None], model=vad).windows()
    for before, window in itertools.pairwise(windows):
        if window.data.reset:
            assert max(before.data.probabilities) < 0.1
    assert max(probabilities(windows)) > 0.9


def test_a20_resets_depend_on_samples_alone() -> None:
    """However fast it is read: at once, or while an hour passes between two chunks."""
    audio = np.concatenate([silence(7), speech(1), silence(7)])
    fast = heard(audio).windows()
    b = Bench()
    b.open()
    for at in range(0, len(audio), 8_000):
        b.play(audio[at : at + 8_000], start_us=at * 125 // 2)
        b.run(seconds=3600)
    b.close()
    b.run()
    assert facts(b.windows()) == facts(fast)


def test_a23_minutes_of_speech_without_a_pause_keep_memory_flat() -> None:
    b = Bench()
    b.open()
    noise = (np.random.default_rng(0).standard_normal((1600, 1)) * 3000).astype(np.int16)
    for at in range(1200):
        b.play(noise, start_us=at * 100_000)
        b.run()
    [session] = b.perception._sessions.values()
    assert [len(c.work) for c in session.channels.values()] == [0]
    assert len(b.windows()) == 1250


def test_a25_speech_shorter_than_a_second_is_heard_before_the_second_is_over() -> None:
    b = Bench()
    b.open()
    b.play(speech(0.6), chunk=320)
    b.run()
    assert len(b.windows()) == 6 and max(probabilities(b.windows())) > 0.5


def test_a26_a_tone_above_the_new_rate_does_not_fold_back() -> None:
    heard_back = samples_of(heard(tone(15_000, 1, 48_000), 48_000))
    assert np.abs(heard_back[800:-800]).max() <= 12  # -60 dB
    passed = samples_of(heard(tone(3_000, 1, 48_000), 48_000))
    assert np.abs(passed[800:-800]).max() > 11_500


@pytest.mark.triton
def test_a26_a_tone_above_the_new_rate_is_no_speech(vad: VadClient) -> None:
    assert max(probabilities(heard(tone(15_000, 2, 48_000), 48_000, model=vad).windows())) < 0.3


def test_a28_another_rate_mid_stream_is_a_new_epoch_not_a_loss() -> None:
    b = Bench()
    b.open()
    end = b.play(speech(1))
    b.close(at_us=b.play(speech(1, 48_000), 48_000, start_us=end))
    b.run()
    changed = b.written("s", "perception.format_changed")[1]
    assert (changed.data.previous_rate, changed.data.rate, changed.mediatime) == (
        16_000,
        48_000,
        end,
    )
    assert next(w.data.start_us for w in b.windows() if w.data.epoch == 1) == end
    assert b.windows()[-1].mediatime >= 2_000_000  # type: ignore[operator]


@pytest.mark.parametrize("seconds", [1.5, 3.0])
def test_a29_audio_that_never_came_does_not_shift_what_follows(seconds: float) -> None:
    b = Bench()
    b.open()
    missing = round(seconds * 1_000_000)
    b.play(silence(1))
    b.play(speech(0.5), start_us=1_000_000 + missing)
    b.close(at_us=b.play(silence(0.5), start_us=1_500_000 + missing))
    b.run()
    loud = [w.data.start_us for w in b.windows() if max(w.data.probabilities) > 0.5]
    assert abs(loud[0] - (1_000_000 + missing)) <= 96_000
    [gap] = b.written("s", "perception.gap")
    assert abs(gap.data.missing_us - missing) <= 63


def test_a31_a_chunk_without_bytes_is_nothing(caplog: pytest.LogCaptureFixture) -> None:
    b = Bench()
    b.open()
    b.play(speech(0.5))
    b.put("s", Pcm(16_000, 1, b""), 500_000)
    b.play(speech(0.5), start_us=500_000)
    b.run()
    assert not b.written("s", "event.rejected", "perception.gap") and not caplog.records
    assert len(b.windows()) == 10


def test_a32_more_channels_than_two_are_an_explicit_event() -> None:
    b = Bench()
    b.open()
    b.put("s", Pcm(16_000, 6, b"\0" * 1200), 0)
    [rejected] = [e for e in b.run() if e.type == "event.rejected"]
    assert rejected.data.reason == "format" and "6 channels" in rejected.data.detail


def test_a32_stereo_reaches_the_model_as_mono() -> None:
    stereo = np.repeat(speech(1), 2, axis=1)
    assert facts(heard(stereo).windows()) == facts(heard(speech(1)).windows())


def test_windows_of_an_assembler_are_what_perception_sees() -> None:
    """Inference cuts its audio by the same classes: the same records, the same samples."""
    audio = speech(1, 44_100, 2)
    b = heard(audio, 44_100)
    assembler, windower, cut = ChannelAssembler(), Windower(), 0
    for piece in assembler.feed("d", "x", 0, 0, Pcm(44_100, 2, audio.tobytes())):
        if isinstance(piece, Samples):
            cut += len(windower.feed(piece))
        else:
            assert isinstance(piece, EpochStarted)
    for piece in assembler.flush():
        assert isinstance(piece, Samples)
        cut += len(windower.feed(piece))
    assert cut + len(windower.finish()) == len(b.windows())
