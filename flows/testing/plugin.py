"""The pytest plugin (entry point `venus`).

- `pytest --venus-sessions DIR` makes a test of each session in each session file of the folder: its decisions must follow from its
  inputs. A file that cannot be read is a failing test. The option may be given several times, or as ini value `venus_sessions`.
- `venus_session` is a factory of scripted sessions (`flows.testing.script.Session`): drive the operators hop by hop and look at what
  they decide: `venus_session(transcript="stop").speak(500).silence(800).types("turn.")`.
- `venus_prove` proves a scripted session or a file: it raises with an explanation where a decision does not follow.

Nothing of ours is imported before one of these is used, since pytest loads this in every run.
"""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from flows.replay import SessionProof
    from flows.testing.script import Session

OPTION = "venus_sessions"


class NotProved(AssertionError):
    """A recorded decision does not follow from the recorded inputs; the message explains it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("venus", "recorded conversations as regression tests")
    group.addoption(
        "--venus-sessions",
        metavar="DIR",
        action="append",
        default=[],
        help="session files that must replay identically",
    )
    parser.addini(
        OPTION, "folders of session files that must replay identically", type="paths", default=[]
    )


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    folders = [Path(f) for f in config.getoption("--venus-sessions")] or list(config.getini(OPTION))
    if not folders:
        return
    from flows.session_files import files_in

    for folder in folders:
        files = files_in(folder) if folder.is_dir() else [folder] if folder.is_file() else []
        if not files:
            raise pytest.UsageError(f"--venus-sessions {folder}: there are no session files in it")
        for file in files:
            items.extend(SessionFile.from_parent(session, path=file.absolute()).collect())


class SessionFile(pytest.File):
    """A session file; a test for each session in it."""

    def collect(self) -> Iterator["SessionTest"]:
        from flows.session_files import open_any, sessions_on
        from schemas.errors import VenusError

        try:
            with open_any(str(self.path)) as log:
                names = sessions_on(log)
            error = None if names else f"{self.path}: there is no session in it"
        except VenusError as found:
            names, error = [], str(found)
        if error is not None:
            yield SessionTest.from_parent(self, name="readable", session_id=None, error=error)
        for name in names:
            yield SessionTest.from_parent(self, name=name, session_id=name, error=None)


class SessionTest(pytest.Item):
    """One recorded session."""

    def __init__(self, *, session_id: str | None, error: str | None, **rest: Any) -> None:
        super().__init__(**rest)
        self.session_id, self.error = session_id, error

    def runtest(self) -> None:
        if self.error is not None:
            raise NotProved(self.error)
        from flows.replay import prove
        from flows.session_files import open_file

        with open_file(self.path) as log:
            _check(prove(log, self.session_id, digest=False)[self.session_id or ""])

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, NotProved):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"replay of {self.name}"


def _check(proof: "SessionProof") -> None:
    if proof.same:
        return
    from rich.console import Console

    from flows.replay_report import explain

    said = io.StringIO()
    explain(proof, Console(file=said, width=150, highlight=False))
    raise NotProved(said.getvalue())


@pytest.fixture
def venus_session() -> "Callable[..., Session]":
    """A factory of scripted sessions."""
    from flows.testing.script import Session

    return Session


@pytest.fixture
def venus_prove() -> "Callable[[Session | Path], None]":
    """Prove a scripted session or all sessions of a file."""

    def prove_it(what: "Session | Path") -> None:
        from flows.replay import Proof, prove
        from flows.session_files import open_file

        if isinstance(what, Path):
            with open_file(what) as log:
                for proof in prove(log, digest=False).values():
                    _check(proof)
            return
        one = Proof(what.name)
        for event in what.inputs:
            one.feed(event)
        _check(one.finish())

    return prove_it
