"""The metrics: name, unit, definition, source. `docs/metrics.md` is generated from this table and held up to date by a test.

`samples` metrics have a value for each occurrence; `share` metrics count occurrences of something among others. Times are media time
unless the definition says wall time.
"""

# ruff: noqa: E501  (one line a metric)

from typing import Literal, NamedTuple

from flows.analysis import duplex_bench, tau_voice

Kind = Literal["samples", "share", "per_time"]

HE = "Heldner & Edlund 2010, J. Phonetics 38"
FDB = "Full-Duplex-Bench v1 (below)"
OURS = "this project"


class Metric(NamedTuple):
    name: str
    unit: str
    kind: Kind
    definition: str
    source: str


METRICS: tuple[Metric, ...] = (
    Metric("response_latency", "s", "samples", "From the end of the user's speech in a turn to the first sound of its answer.", "Skantze 2021, Computer Speech & Language 67"),
    Metric("decision_delay", "s", "samples", "From the end of a turn's speech to the decision that the turn is over.", OURS),
    Metric("stop_latency", "s", "samples", "Of overlaps that were interruptions: from the user's onset to the assistant's falling silent.", "τ-voice L_Y, on continuous time"),
    Metric("fto", "s", "samples", "Floor-transfer offset: silence (positive) or overlap (negative) between the IPUs of two speakers at a change of floor.", HE),
    Metric("gap", "s", "samples", "Floor transfers with silence: its length.", HE),
    Metric("overlap", "s", "samples", "Floor transfers with overlap: its length.", HE),
    Metric("overlap_within", "s", "samples", "Speech of one inside an IPU of the other, which moves no floor: its length.", HE),
    Metric("pause", "s", "samples", "Silence between two IPUs of one speaker with none of the other in between.", HE),
    Metric("ipu_user", "s", "samples", "Inter-pausal units of the user: speech with silences of less than 200 ms bridged.", "Koiso et al. 1998, Language and Speech 41"),
    Metric("ipu_assistant", "s", "samples", "Inter-pausal units of the assistant, as heard.", "Koiso et al. 1998, Language and Speech 41"),
    Metric("turn_length", "s", "samples", "From the start to the end of the speech of a user's turn.", OURS),
    Metric("rate_user", "words/s", "samples", "Words of a user's turn per second of its length.", OURS),
    Metric("rate_assistant", "words/s", "samples", "Words heard of a response per second of it that was heard.", OURS),
    Metric("backchannels", "/min", "per_time", "Overlaps with the verdict backchannel, per minute of assistant speech.", "Ward & Tsukahara 2000, J. Pragmatics 32 (rate)"),
    Metric("interruption", "", "share", "Overlaps with the verdict interruption, of all overlaps.", OURS),
    Metric("backchannel", "", "share", "Overlaps with the verdict backchannel, of all overlaps.", OURS),
    Metric("noise", "", "share", "Overlaps with the verdict noise or side talk, of all overlaps.", OURS),
    Metric("inconclusive", "", "share", "Overlaps without a clear verdict, of all overlaps.", OURS),
    Metric("stopped", "", "share", "Responses that were cancelled, of all that began to be heard.", OURS),
    Metric("false_cutoff", "", "share", "Turns after whose end was decided the user went on speaking within 1.0 s, of all spoken turns: the end was decided too early.", "this project, after the false cut-in rate of endpointing"),
    Metric("fdb_takeover", "", "share", "Turns after which the assistant took the floor, of all turns with words.", FDB),
    Metric("fdb_latency", "s", "samples", "Where it took the floor: from the end of the user's speech in the turn to its first word, at least 0.", FDB),
    Metric("fdb_backchannels", "/s", "per_time", "The assistant's stretches of speech that took no floor, per second of the recording.", FDB),
    Metric("fdb_backchannel_distance", "0 … 1", "samples", "Jensen-Shannon distance of their times from the reference's (only with --reference).", FDB),
    Metric("endpoint_latency", "ms", "samples", "Wall time from endpoint.requested in the log to its answer.", OURS),
    Metric("transcript_latency", "ms", "samples", "Wall time from transcript.requested in the log to its answer.", OURS),
    Metric("generation_latency", "ms", "samples", "Wall time from response.requested in the log to the first text.", OURS),
    Metric("speech_latency", "ms", "samples", "Wall time from speech.requested in the log to the first sound.", OURS),
    Metric("vad_latency", "ms", "samples", "Wall time from an audio chunk in the log to the first window that holds its end (only with --media).", OURS),
    Metric("work_duration", "s", "samples", "From work.queued to the work's result.", OURS),
    Metric("delivery_delay", "s", "samples", "From a work's result to its delivery: spoken and heard.", OURS),
)  # fmt: skip
BY_NAME = {metric.name: metric for metric in METRICS}

FALSE_CUTOFF_US = 1_000_000


def document() -> str:
    """`docs/metrics.md`."""
    lines = [
        "# Metrics",
        "",
        "Generated from `flows/analysis/metrics.py`. `venus stats` prints them, `venus report` draws them.",
        "",
        "All times are media time (the session's own clock) unless a definition says wall time. Pooled values are over all",
        "observations; intervals are 95 % bootstrap intervals of the median (of the rate for shares): sessions are drawn with",
        "replacement (observations, where there is one session), 1,000 times, with a fixed seed. The user's activity is that of the",
        "`turn` operator; the assistant's is what the device acknowledged as played.",
        "",
        "| metric | unit | definition | source |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{m.name}` | {m.unit or 'share'} | {m.definition} | {m.source} |" for m in METRICS
    ]
    for title, module in (("τ-voice", tau_voice), ("Full-Duplex-Bench v1", duplex_bench)):
        lines += ["", f"## {title}", "", (module.__doc__ or "").strip()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(document())
