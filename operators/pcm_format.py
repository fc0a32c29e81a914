"""What a media record must be before it becomes samples: whole frames of bare PCM16 at a usable rate.

A container's header where PCM belongs would be heard as a burst (A11). Only a WAV header whose format is
the one that the content-type names is stripped, once, where a stream starts; all else is refused with
what is required.
"""

import struct
from typing import Literal, NamedTuple

from schemas.base import LONGEST_US
from schemas.cloudevents import MIN_PCM_RATE
from schemas.envelope import Pcm


class Rejected(NamedTuple):
    """The record cannot be used; `detail` says what was required and what came."""

    reason: Literal["late", "format", "invalid"]
    detail: str


def checked_pcm(pcm: Pcm, mediatime: int | None, stream_start: bool) -> bytes | Rejected:
    """The PCM bytes of a record, or why they cannot be used."""
    data = pcm.pcm
    if pcm.channels > 2:
        return Rejected("format", f"{pcm.channels} channels came; 1 or 2 can be used")
    if pcm.rate < MIN_PCM_RATE:
        return Rejected(
            "format", f"{pcm.rate} samples a second came; at least {MIN_PCM_RATE} required"
        )
    if mediatime is not None and not 0 <= mediatime < LONGEST_US:
        return Rejected(
            "invalid", f"media time {mediatime} is not µs since the session opened (0 to one week)"
        )
    container = _container(data)
    if container == "WAV" and stream_start:
        found = _wav_payload(data, pcm)
        if isinstance(found, Rejected):
            return found
        data = found
    elif container:
        return Rejected("format", f"a {container} header came where bare PCM is required")
    frame = 2 * pcm.channels
    if len(data) % frame:
        return Rejected(
            "format", f"{len(data)} bytes are no multiple of {frame} ({pcm.channels} ch)"
        )
    return data


def _container(data: bytes) -> str | None:
    """The container that a record begins with; signatures too long for chance or loud audio."""
    first = data[:4]
    if first == b"RIFF" and data[8:12] == b"WAVE":
        return "WAV"
    if first == b"fLaC" and data[5:8] == b"\x00\x00\x22":
        return "FLAC"
    if first == b"OggS" and data[4:5] == b"\x00":
        return "Ogg"
    if first[:3] == b"ID3" and data[3:5] in (b"\x02\x00", b"\x03\x00", b"\x04\x00"):
        return "ID3"
    return None


def _wav_payload(data: bytes, pcm: Pcm) -> bytes | Rejected:
    """The data chunk of a WAV whose format is what the content-type says."""
    at, found = 12, None
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8
        if name == b"fmt " and at + 16 <= len(data):
            tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", data, at)
            found = (rate, channels) if tag in (1, 0xFFFE) and bits == 16 else (0, 0)
        if name == b"data":
            if found != (pcm.rate, pcm.channels):
                break
            # A stream's header often holds no length, or the largest one.
            return data[at:] if size == 0 else data[at : at + size]
        at += size + size % 2
    return Rejected(
        "format",
        f"a WAV header came that does not say PCM16, {pcm.rate} Hz, {pcm.channels} channels",
    )
