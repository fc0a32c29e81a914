"""The page of a set of sessions: pooled figures with intervals, distributions, and a table that leads to each session's page."""

from collections.abc import Sequence
from html import escape
from math import isnan
from pathlib import Path
from statistics import median
from urllib.parse import quote

from flows.analysis.many import Pooled, pool
from flows.analysis.metrics import BY_NAME
from flows.analysis.session import Figures
from flows.report.page import histogram, page, table
from infra.atomic import new_file


def write_set(
    sessions: Sequence[Figures], pages: Sequence[str | None], errors: Sequence[str], path: Path
) -> None:
    """`pages`: the file name of each session's page, beside this one; None where it has none."""
    pooled = pool(sessions)
    body = [f"<h1>{len(sessions):,} sessions, {pooled.media_s / 60:.1f} min</h1>"]
    body += [f'<p class="warn">{escape(error)}</p>' for error in errors]
    body += [
        "<h2>Pooled</h2>",
        pooled_table(pooled),
        "<p>Definitions and sources: docs/metrics.md.</p>",
    ]
    drawings = [
        histogram(m, [v for s in sessions for v in s.samples.get(m, [])], BY_NAME[m].unit)
        for m in pooled.samples
    ]
    body.append(f'<h2>Distributions</h2><div class="row">{"".join(drawings)}</div>')
    body += ["<h2>Sessions</h2>", _sessions(sessions, pages)]
    with new_file(path) as file:
        file.write(page("venus report", body).encode())


def _sessions(sessions: Sequence[Figures], pages: Sequence[str | None]) -> str:
    head = (
        "session",
        "length s",
        "turns",
        "responses",
        "overlaps",
        "response latency s",
        "stop latency s",
        "fto s",
    )
    out = [
        "<table><thead><tr>",
        *(f'<th class="{"n" if i else ""}">{name}</th>' for i, name in enumerate(head)),
        "</tr></thead><tbody>",
    ]
    for one, file in zip(sessions, pages, strict=True):
        name = escape(one.name)
        link = f'<a href="{escape(quote(file))}">{name}</a>' if file else name
        cells = [f"{one.media_s:.0f}"] + [
            str(one.counts.get(n, "")) for n in ("turns", "responses", "overlaps")
        ]
        for metric in ("response_latency", "stop_latency", "fto"):
            values = sorted(one.samples.get(metric, []))
            cells.append(f"{median(values):.2f}" if values else "")
        out.append(
            f"<tr><td>{link}</td>" + "".join(f'<td class="n">{c}</td>' for c in cells) + "</tr>"
        )
    return "".join([*out, "</tbody></table>"])


def pooled_table(pooled: Pooled) -> str:
    """All figures, as `venus stats` prints them."""
    rows: list[tuple[object, ...]] = []
    for name, s in pooled.samples.items():
        interval = "" if isnan(s.low) else f"{s.low:.3g} … {s.high:.3g}"
        rows.append(
            (
                name,
                f"{s.n:,}",
                f"{s.median:.3g}",
                interval,
                f"{s.mean:.3g}",
                f"{s.p10:.3g}",
                f"{s.p90:.3g}",
                BY_NAME[name].unit,
            )
        )
    for name, (rate, low, high, of) in pooled.rates.items():
        interval = "" if isnan(low) else f"{low:.3g} … {high:.3g}"
        rows.append(
            (name, f"{of:,}", f"{rate:.3g}", interval, "", "", "", BY_NAME[name].unit or "share")
        )
    for name, value in pooled.tau_voice.items():
        rows.append(
            (
                f"τ-voice {name}",
                "",
                "fewer than 10" if value is None else f"{value:.3g}",
                "",
                "",
                "",
                "",
                "",
            )
        )
    head = ("", "n", "median", "95 % interval", "mean", "p10", "p90", "unit")
    return table(head, rows, numeric=range(1, 7))
