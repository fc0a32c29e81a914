"""The pages' common parts: head, style, the timeline widget, tables, histograms.

Everything is escaped; nothing is loaded from elsewhere.
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from statistics import median
from typing import Any

import orjson

USER, ASSISTANT, INK, QUIET = "#2a6f97", "#e07a1f", "#333", "#8d99ae"
VERDICTS = {
    "interruption": "#c1121f",
    "backchannel": "#588157",
    "noise": "#8d99ae",
    "side_talk": "#8d99ae",
}
KINDS = {
    "endpoint": "#6a4c93",
    "transcript": "#1982c4",
    "generate": "#8ac926",
    "speak": "#ff924c",
    "work": "#b5179e",
}

STYLE = """
:root{color-scheme:light}body{font:14px/1.45 system-ui,sans-serif;color:#222;margin:0 auto;max-width:1500px;padding:16px 24px}
h1{font-size:20px;margin:0 0 4px}h2{font-size:15px;margin:22px 0 6px}p{margin:2px 0 10px;color:#555}
.timeline{position:relative;border:1px solid #ddd;border-radius:6px;padding:6px 8px;background:#fff}
.timeline canvas{width:100%;display:block;cursor:grab;touch-action:none}.timeline audio{height:32px;flex:1;min-width:240px}
.bar{display:flex;gap:6px;align-items:center;margin-bottom:4px}.bar button{font:inherit;padding:1px 9px}
.tip{position:absolute;display:none;background:#222;color:#fff;padding:3px 8px;border-radius:4px;font-size:12px;max-width:330px;
pointer-events:none;z-index:9;white-space:pre-wrap}
table{border-collapse:collapse;margin:4px 0}th{text-align:left;font-weight:600;border-bottom:1px solid #ccc}
td,th{padding:2px 10px 2px 0;vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
tr[data-at]{cursor:pointer}tr[data-at]:hover{background:#f3f6f9}
.scroll{max-height:420px;overflow:auto;border:1px solid #eee;padding:0 8px}.row{display:flex;flex-wrap:wrap;gap:18px}
figure{margin:0}figcaption{font-size:12px;color:#555}.legend span{margin-right:12px;white-space:nowrap}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:4px}
.warn{background:#fff5d6;padding:4px 8px;border-radius:4px}
"""

Span = tuple[int, int, str, str, str]
"""From µs, to µs, colour, label, tip."""
Mark = tuple[int, str, str]


@dataclass(slots=True)
class Row:
    """One lane of a timeline."""

    name: str
    height: int = 22
    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    colour: str = INK
    envelope: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "height": self.height,
            "spans": self.spans,
            "marks": self.marks,
            "colour": self.colour,
            "envelope": self.envelope,
        }


def envelope(peaks: bytes, step_us: int) -> dict[str, Any]:
    """What the widget draws as a waveform: a peak of 0 to 255 for each step."""
    return {"peaks": base64.b64encode(peaks).decode(), "step_us": step_us}


def timeline(
    name: str,
    rows: Iterable[Row],
    length_us: int,
    audio: str | None = None,
    cut_us: int | None = None,
) -> str:
    """The widget. `audio` is a data URL."""
    data = {"length_us": length_us, "rows": [r.as_json() for r in rows], "cut_us": cut_us}
    # `</script>` inside a text would end the script.
    text = orjson.dumps(data).decode().replace("<", "\\u003c")
    player = f'<audio controls preload="metadata" src="{audio}"></audio>' if audio else ""
    return (
        f'<div class="timeline" id="{escape(name)}"><div class="bar"><button data-zoom="0.5">+</button>'
        f'<button data-zoom="2">−</button><button data-zoom="0">all</button>{player}</div><canvas></canvas>'
        f'<div class="tip"></div></div><script>timeline(document.getElementById({orjson.dumps(name).decode()}),{text})</script>'
    )


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    numeric: Sequence[int] = (),
    at: Sequence[int] | None = None,
) -> str:
    """A table; `at` gives each row a place on the timeline, to which a click goes."""
    cells = [
        f'<th class="{"n" if i in numeric else ""}">{escape(name)}</th>'
        for i, name in enumerate(head)
    ]
    out = ["<table><thead><tr>", *cells, "</tr></thead><tbody>"]
    for index, row in enumerate(rows):
        out.append(f'<tr data-at="{at[index]}">' if at is not None else "<tr>")
        for i, value in enumerate(row):
            text = "" if value is None else str(value)
            out.append(f'<td class="{"n" if i in numeric else ""}">{escape(text)}</td>')
        out.append("</tr>")
    return "".join([*out, "</tbody></table>"])


def histogram(title: str, values: Sequence[float], unit: str, bins: int = 24) -> str:
    """A distribution as a small SVG; the median is marked."""
    if not values:
        return ""
    ordered = sorted(values)
    # The outermost hundredths would squeeze the rest.
    low, high = ordered[len(ordered) // 100], ordered[-1 - len(ordered) // 100]
    high = high if high > low else low + 1
    counts = [0] * bins
    for value in ordered:
        counts[min(bins - 1, max(0, int((value - low) / (high - low) * bins)))] += 1
    width, height, top = 260, 90, max(counts)
    bars = "".join(
        f'<rect x="{i * width / bins:.1f}" y="{height - n / top * height:.1f}" width="{width / bins - 1:.1f}" '
        f'height="{n / top * height:.1f}" fill="{USER}"><title>{low + i * (high - low) / bins:.3g} {unit}: {n}</title></rect>'
        for i, n in enumerate(counts)
    )
    middle = median(ordered)
    x = min(width, max(0, (middle - low) / (high - low) * width))
    axis = f'<text x="0" y="{height + 12}">{low:.3g}</text><text x="{width}" y="{height + 12}" text-anchor="end">{high:.3g} {unit}</text>'
    return (
        f'<figure><svg width="{width}" height="{height + 16}" font-size="10" role="img" aria-label="{escape(title)}">{bars}'
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}" stroke="#c1121f"/>{axis}</svg>'
        f"<figcaption>{escape(title)}: n {len(ordered):,}, median {middle:.3g} {unit}</figcaption></figure>"
    )


def legend(colours: dict[str, str]) -> str:
    items = "".join(
        f'<span><i style="background:{c}"></i>{escape(n)}</span>' for n, c in colours.items()
    )
    return f'<p class="legend">{items}</p>'


def page(title: str, body: Iterable[str]) -> str:
    """A whole document."""
    script = files("flows.report").joinpath("timeline.js").read_text(encoding="utf-8")
    jump = (
        'document.addEventListener("click",(e)=>{const r=e.target.closest("tr[data-at]");if(!r)return;'
        'const t=document.querySelector(".timeline"),a=+r.dataset.at;t.show(a-3e6,a+12e6);'
        'const s=t.querySelector("audio");if(s)s.currentTime=a/1e6;t.scrollIntoView({block:"nearest"})})'
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'unsafe-inline'; media-src data:; img-src data:\">"
        f"<style>{STYLE}</style><script>{script}</script></head><body>{''.join(body)}<script>{jump}</script></body></html>"
    )
