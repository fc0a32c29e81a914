"""Python skills: functions with a pydantic argument model, declared by `@skill` and run in worker processes (`infra.harness.pool`).

    class City(BaseModel):
        city: str

    @skill("weather", "The weather in a city now.", idempotent=True, timeout=20)
    def weather(arguments: City, context: SkillContext) -> str: ...

The function takes its arguments, and the context if it has a second parameter; it may be `async`. It runs in a process of its own, so
that it may compute, block, hang or crash. `idempotent=True` says that running it twice does no more than once: only then is it retried,
and run again after a crash. Skills are found in modules by name and under the entry point group `venus.skills`.
"""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar, get_type_hints

from pydantic import BaseModel, ValidationError

from infra.harness.port import ToolRejected
from schemas.errors import BadInput
from schemas.policy_work import IntentRule

GROUP = "venus.skills"
MARK = "__venus_skill__"

F = TypeVar("F", bound=Callable[..., Any])


class SkillContext(Protocol):
    """What a skill may do besides returning its result."""

    workspace: Path
    """A folder of this work's own."""
    session: str
    work: str
    language: str

    def progress(self, text: str) -> None: ...

    def artifact(self, path: Path | str, media_type: str = "") -> None:
        """Keep a file that the skill wrote into its workspace."""
        ...


@dataclass(frozen=True, slots=True)
class Skill:
    """A declared skill."""

    name: str
    description: str
    function: Callable[..., Any]
    arguments: type[BaseModel]
    idempotent: bool = False
    timeout_s: float = 30.0
    intents: tuple[IntentRule, ...] = ()
    module: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def validated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as its model has them, ready for JSON.

        Raises:
            ToolRejected: they do not fit.
        """
        try:
            return self.arguments.model_validate(dict(arguments)).model_dump(mode="json")
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "arguments"
            raise ToolRejected(f"skill {self.name}: {where}: {first['msg']}") from None


def skill(
    name: str,
    description: str,
    *,
    idempotent: bool = False,
    timeout: float = 30.0,
    phrases: Iterable[str] = (),
    corrections: Iterable[str] = (),
    say: str = "",
) -> Callable[[F], F]:
    """Declare a function as a skill.

    Args:
        name: what requests and language models call it: letters, digits, `_`, `-` and `.`.
        description: for a language model that chooses among skills.
        idempotent: running it twice does no more than once.
        timeout: seconds of wall time.
        phrases: templates of words that delegate to it without a language model (`schemas.policy_work`).
        corrections: what may follow "no," to change an argument.
        say: the holding sentence of these phrases.
    """
    if not name or not all(c.isalnum() or c in "_-." for c in name):
        raise BadInput(f"skill name {name!r}: use letters, digits, '_', '-' and '.'")

    def declare(function: F) -> F:
        hints = get_type_hints(function)
        parameters = list(inspect.signature(function).parameters)
        model = hints.get(parameters[0]) if parameters else None
        if not (inspect.isclass(model) and issubclass(model, BaseModel)):
            raise BadInput(f"skill {name}: its first parameter needs a pydantic model as its type")
        rules: tuple[IntentRule, ...] = ()
        if tuple(phrases):
            rules = (
                IntentRule(
                    name=name,
                    skill=name,
                    patterns=tuple(phrases),
                    corrections=tuple(corrections),
                    say=say,
                ),
            )
        declared = Skill(
            name, description, function, model, idempotent, timeout, rules, function.__module__
        )
        setattr(function, MARK, declared)
        return function

    return declare


class SkillSet:
    """The skills of some modules, by name."""

    def __init__(self, modules: Iterable[str] = (), *, installed: bool = True) -> None:
        self.skills: dict[str, Skill] = {}
        self.modules = list(dict.fromkeys(modules))
        for module in self.modules:
            self._add(_import(module))
        if installed:
            for point in entry_points(group=GROUP):
                self.modules.append(point.module)
                self._add(_import(point.module))

    def _add(self, module: ModuleType) -> None:
        found = [
            s
            for value in vars(module).values()
            if isinstance(s := getattr(value, MARK, None), Skill)
        ]
        for one in found:
            known = self.skills.get(one.name)
            if known is not None and known.function is not one.function:
                raise BadInput(
                    f"two skills are named {one.name}: in {known.module} and in {one.module}"
                )
            self.skills[one.name] = one

    def intents(self) -> list[dict[str, Any]]:
        """The intent rules of all its skills, as `policy.work.intents` takes them."""
        return [rule.model_dump(mode="json") for s in self.skills.values() for rule in s.intents]


def _import(name: str) -> ModuleType:
    """A module by name (also from the current folder) or by the path of its file."""
    folder, file = Path.cwd(), None
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise BadInput(f"skills file {name}: no such file")
        file = Path(name).resolve()
        if "." in file.stem:
            raise BadInput(
                f"skills file {name}: a module's name has no dot; call it {file.stem.replace('.', '_')}.py"
            )
        folder, name = file.parent, file.stem
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        what = " ".join(str(error).split())
        if not isinstance(error, (BadInput, ImportError)):
            what = f"{type(error).__name__}: {what}"
        raise BadInput(
            f"the skills module {name} cannot be imported: {_where(error)}{what}"
        ) from error
    found = getattr(module, "__file__", None)
    if file is not None and (found is None or Path(found).resolve() != file):
        where = "is built in" if found is None else f"is {found}"
        raise BadInput(f"skills file {file}: the module {name} {where}; give the file another name")
    return module


def _where(error: BaseException) -> str:
    """The line of the module, or of what lies beside it, that went wrong."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}: "
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith("<") and f.filename not in (__file__, importlib.__file__)
    ]
    folder = Path(frames[0].filename).parent if frames else Path()
    own = [f for f in frames if Path(f.filename).is_relative_to(folder)]
    own = [f for f in own if "site-packages" not in f.filename] or own
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
