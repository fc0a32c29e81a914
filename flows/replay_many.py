"""Replay over many recordings at once: timelines and session files, each in a process of its own, with a summary and JUnit XML.

A file that cannot be read is one clear line and a failed row; the others are replayed all the same.
"""

import io
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console

from flows.moments import Moment, parse_moment
from flows.replay import SessionProof, prove, prove_both
from flows.session_files import files_in, open_any
from infra.clock import monotonic_s
from schemas.errors import BadInput, VenusError


@dataclass(slots=True)
class FileResult:
    """What replaying one recording showed: a proof for each of its sessions, or why it could not be read."""

    where: str
    proofs: list[SessionProof] = field(default_factory=list)
    took_s: float = 0.0
    error: str | None = None

    @property
    def same(self) -> bool:
        return self.error is None and all(p.same for p in self.proofs)

    @property
    def media_s(self) -> float:
        return sum(p.media_us for p in self.proofs) / 1e6


@dataclass(frozen=True, slots=True)
class Job:
    """How to replay a recording."""

    where: str
    session: str | None = None
    through_bytewax: bool = True
    until: str | None = None


def targets(paths: Sequence[str]) -> list[str]:
    """Timelines and files as they are, folders as the session files in them.

    Raises:
        BadInput: a path that does not exist, a folder without session files.
    """
    found: list[str] = []
    for text in paths:
        path = Path(text)
        if "://" in text:
            found.append(text)
        elif path.is_dir():
            files = files_in(path)
            if not files:
                raise BadInput(f"{path}: there are no session files in it")
            found += map(str, files)
        elif path.exists():
            found.append(text)
        else:
            raise BadInput(
                f"{path}: no such file or folder; a timeline is named by its URL (sqlite:///path.db)"
            )
    return found


def replay_one(job: Job) -> FileResult:
    """Prove one recording; never raises for what is wrong with it."""
    result = FileResult(job.where)
    begun = monotonic_s()
    until: Moment | None = None if job.until is None else parse_moment(job.until)
    try:
        with open_any(job.where) as timeline:
            if job.through_bytewax and until is None:
                proofs = prove_both(timeline, job.session)
            else:
                proofs = prove(timeline, job.session, until=until, digest=False)
        result.proofs = [p for p in proofs.values() if p.configured or not p.difference]
        odd = [name for name, p in proofs.items() if p not in result.proofs]
        if odd:
            result.error = f"{job.where}: {not_configured(odd)}"
        elif not proofs:
            result.error = f"{job.where}: there is no session in it"
    except VenusError as error:
        result.error = str(error)
    result.took_s = monotonic_s() - begun
    return result


def replay_many(
    jobs: Sequence[Job], workers: int, progress: Callable[[FileResult], None] | None = None
) -> list[FileResult]:
    """All of them, `workers` at once; in the order of the jobs."""
    if len(jobs) == 1 or workers == 1:
        results = []
        for job in jobs:
            results.append(replay_one(job))
            if progress is not None:
                progress(results[-1])
        return results
    done: dict[int, FileResult] = {}
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context) as pool:
        waiting = {pool.submit(replay_one, job): index for index, job in enumerate(jobs)}
        for future in as_completed(waiting):
            result = done[waiting[future]] = future.result()
            if progress is not None:
                progress(result)
    return [done[index] for index in range(len(jobs))]


def not_configured(sessions: Sequence[str]) -> str:
    """What is wrong with sessions in which something was decided under a policy that nobody can read."""
    named = f"session {', '.join(map(repr, sessions[:3]))}"
    more = f" and {len(sessions) - 3} more" if len(sessions) > 3 else ""
    return f"{named}{more} without a session.configured that can be read; was it written by a newer venus?"


def junit(
    results: Iterable[FileResult], path: Path, explain: Callable[[SessionProof, Console], None]
) -> None:
    """Write JUnit XML: a suite for each recording, a case for each session."""
    root = ElementTree.Element("testsuites", name="venus replay")
    totals = [0, 0, 0]
    for result in results:
        failures = sum(not p.same for p in result.proofs)
        cases = max(1, len(result.proofs))
        errors = int(result.error is not None)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_printable(result.where),
            tests=str(cases),
            failures=str(failures),
            errors=str(errors),
            time=f"{result.took_s:.3f}",
        )
        totals = [totals[0] + cases, totals[1] + failures, totals[2] + errors]
        if result.error is not None:
            case = ElementTree.SubElement(
                suite, "testcase", classname=_printable(result.where), name="read"
            )
            ElementTree.SubElement(case, "error", message=_printable(result.error))
        for proof in result.proofs:
            time = f"{result.took_s / len(result.proofs):.3f}"
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=_printable(result.where),
                name=_printable(proof.session),
                time=time,
            )
            if not proof.same:
                said = io.StringIO()
                explain(proof, Console(file=said, width=160))
                text = said.getvalue()
                found = proof.difference
                short = "differs through Bytewax"
                if proof.failure is not None:
                    short = f"an operator fails: {proof.failure.error}"
                elif found is not None:
                    short = f"decision {found.index}, operator {found.operator}"
                ElementTree.SubElement(
                    case, "failure", message=_printable(short)
                ).text = _printable(text)
    for name, total in zip(("tests", "failures", "errors"), totals, strict=True):
        root.set(name, str(total))
    ElementTree.indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _printable(text: str) -> str:
    """XML 1.0 has no place for most control characters."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())
