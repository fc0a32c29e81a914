"""`venus replay --rerun`: the models asked again, told to people, as JSON and as JUnit XML."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import orjson
from rich.console import Console
from rich.text import Text

from flows.rerun import MODELS, Rerun, Tolerances, parse_kinds, rerun_session
from flows.session_files import open_any, sessions_on
from schemas.errors import BadInput

SHOWN = 8


@contextmanager
def _server(triton: str | None, kinds: tuple[str, ...]) -> Iterator[str]:
    """The URL of the server that is named, or of one that is started with just these models."""
    from flows.settings import Settings

    where = triton or Settings.read().triton
    if where != "local":
        yield where
        return
    from infra.triton.server import LocalTriton, TritonStartError

    with tempfile.TemporaryDirectory() as folder:
        try:
            server = LocalTriton(
                [MODELS[k] for k in kinds],
                log_path=Path(folder) / "triton.log",
                device=Settings.read().device,
            ).start()
        except TritonStartError as error:
            raise BadInput(str(error)) from None
        with server:
            yield server.url


def rerun_all(
    wanted: list[str],
    session: str | None,
    kinds_text: str,
    changes: dict[str, str],
    tolerances_file: Path | None,
    triton: str | None,
    console: Console,
    json: bool,
    junit: Path | None,
) -> int:
    """Returns the exit code."""
    kinds, tolerances = parse_kinds(kinds_text), Tolerances.read(tolerances_file)
    results: list[Rerun] = []
    with _server(triton, kinds) as url:
        for where in wanted:
            with open_any(where) as log:
                names = sessions_on(log) if session is None else [session]
                for name in names:
                    results.append(rerun_session(log, name, kinds, url, tolerances, changes))
                    if json:
                        print(orjson.dumps(_as_json(results[-1])).decode())
                    else:
                        _explain(results[-1], console)
    if junit is not None:
        _junit(results, junit)
    return 0 if all(r.passed for r in results) else 1


def _explain(result: Rerun, console: Console) -> None:
    verdict = ("within tolerances", "green") if result.passed else ("beyond tolerances", "red")
    console.print(Text(*verdict), Text(result.session))
    for check in result.checks:
        mark = Text("  ").append(*(("✓", "green") if check.passed else ("✗", "red")))
        worst = f", {check.worst}" if check.worst and check.compared else ""
        console.print(
            mark,
            f"{check.name:<10} {check.compared:,} compared, {len(check.beyond):,} beyond{worst}",
            markup=False,
        )
        for line in check.beyond[:SHOWN]:
            console.print(Text(f"      {line}"))
        if len(check.beyond) > SHOWN:
            console.print(f"      … and {len(check.beyond) - SHOWN:,} more")


def _as_json(result: Rerun) -> dict[str, object]:
    checks = [
        {
            "name": c.name,
            "passed": c.passed,
            "compared": c.compared,
            "beyond": [b._asdict() for b in c.beyond],
            "worst": c.worst,
        }
        for c in result.checks
    ]
    return {
        "session": result.session,
        "passed": result.passed,
        "checks": checks,
        "changed": len(result.changed),
    }


def _junit(results: list[Rerun], path: Path) -> None:
    root = ElementTree.Element("testsuites", name="venus replay --rerun")
    for result in results:
        failures = str(sum(not c.passed for c in result.checks))
        suite = ElementTree.SubElement(
            root, "testsuite", name=result.session, tests=str(len(result.checks)), failures=failures
        )
        for check in result.checks:
            case = ElementTree.SubElement(
                suite, "testcase", classname=result.session, name=check.name
            )
            if not check.passed:
                message = f"{len(check.beyond)} of {check.compared} beyond the tolerance"
                ElementTree.SubElement(case, "failure", message=message).text = "\n".join(
                    map(str, check.beyond)
                )
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
