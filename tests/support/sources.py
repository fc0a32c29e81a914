"""The project's source files as syntax trees, for the tests that hold its rules."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Source:
    """One module: its path below the project's root, and its tree."""

    path: str
    tree: ast.Module
    lines: int

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, full name) of all that is imported, also within functions."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                # No part of the project uses relative imports; one would hide what it imports.
                base = "." * node.level + (node.module or "")
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)

    def names(self) -> Iterator[tuple[int, str]]:
        """(line, full name) of every name used: `import time as t; t.monotonic` is `time.monotonic`."""
        known = self._bound()
        for node in ast.walk(self.tree):
            dotted = _dotted(node)
            if dotted:
                head, _, rest = dotted.partition(".")
                full = known.get(head, head)
                yield node.lineno, f"{full}.{rest}" if rest else full  # type: ignore[attr-defined]

    def calls(self) -> Iterator[tuple[int, str]]:
        """(line, name) of every call of a plain name, as in `open(path)`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield node.lineno, node.func.id

    def _bound(self) -> dict[str, str]:
        """Local name → the full name that an import gave it."""
        bound = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return bound


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def parse(path: str, text: str) -> Source:
    return Source(path, ast.parse(text, path), text.count("\n"))


def sources(*folders: str) -> list[Source]:
    """All modules below the named top-level folders."""
    found = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.append(parse(str(path.relative_to(ROOT)), path.read_text()))
    return found


def within(name: str, prefixes: frozenset[str] | set[str]) -> str | None:
    """The prefix that a dotted name lies in (`os.path.join` lies in `os`), None if in none."""
    parts = name.split(".")
    return next(
        (".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in prefixes),
        None,
    )
