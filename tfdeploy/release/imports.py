"""Read the imports of a Python text, and what the features that it uses import later. Pure."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# What TensorFlow and Keras import only when the feature is used. TensorFlow 2.21 does not require
# these packages any more.
KERAS = r"(tensorflow\.(compat\.v[12]\.)?keras|keras|tf_keras)\."
FEATURES = {
    re.compile(KERAS + r"callbacks\.TensorBoard"): "tensorboard",
    re.compile(r"tensorflow\.(compat\.v2\.)?summary\.(audio|histogram|image|scalar|text)"): (
        "tensorboard"
    ),
    re.compile(KERAS + r"utils\.plot_model"): "pydot",
    re.compile(KERAS + r"(utils|preprocessing\.image)\.(load_img|save_img|array_to_img)"): "PIL",
}
CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Import:
    """An import of one name.

    `statement` does it alone. `module` is the module that it names, "" in `from . import x`, and
    `name` what it takes from it, "" for the module itself; `level` is the number of leading dots,
    and `local` the name that the text uses. The program goes on without an `is_optional` one.
    `feature` is what imports it if the text itself does not.
    """

    line: int
    statement: str
    module: str
    name: str = ""
    level: int = 0
    local: str = ""
    is_optional: bool = False
    feature: str = ""

    @property
    def top(self) -> str:
        """Return the package in which the module is."""
        return self.module.partition(".")[0]

    @property
    def full_name(self) -> str:
        return f"{self.module}.{self.name}".strip(".")


def read(tree: ast.Module) -> tuple[Import, ...]:
    """Return the imports of a module, each once, and then those of the features that it uses."""
    written = [*_imports(tree.body, is_optional=False)]
    found: dict[str, Import] = {}
    for each in sorted(written, key=lambda each: each.is_optional):
        found.setdefault(each.statement, each)
    for each in _features(tree, written):
        found.setdefault(each.statement, each)
    return tuple(found.values())


def _imports(nodes: list[ast.stmt], *, is_optional: bool) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (_import(node, alias, is_optional=is_optional) for alias in node.names)
        else:
            for body, goes_on in _bodies(node):
                yield from _imports(body, is_optional=is_optional or goes_on)


def _import(node: ast.Import | ast.ImportFrom, alias: ast.alias, *, is_optional: bool) -> Import:
    if isinstance(node, ast.Import):
        local = alias.asname or alias.name.partition(".")[0]
        statement, name = f"import {alias.name}", alias.name
        return Import(node.lineno, statement, name, local=local, is_optional=is_optional)
    module, local = node.module or "", alias.asname or alias.name
    statement = f"from {'.' * node.level}{module} import {alias.name}"
    return Import(node.lineno, statement, module, alias.name, node.level, local, is_optional)


def _bodies(node: ast.AST) -> Iterator[tuple[list[ast.stmt], bool]]:
    """Yield the blocks of statements in a statement, and whether the program goes on without what
    they import."""
    goes_on = (
        (isinstance(node, ast.If) and not _is_main(node.test))
        or (isinstance(node, ast.With) and any(map(_suppresses, node.items)))
        or isinstance(node, ast.ExceptHandler)
    )
    for name, value in ast.iter_fields(node):
        blocks = value if isinstance(value, list) else []
        statements = [each for each in blocks if isinstance(each, ast.stmt)]
        if statements:
            yield statements, goes_on or (name == "body" and _is_tried(node))
        for each in blocks:
            if isinstance(each, (ast.ExceptHandler, ast.match_case)):
                yield from _bodies(each)


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and ast.unparse(test.left) == "__name__"


def _is_tried(node: ast.AST) -> bool:
    """Return whether a statement catches an ImportError of its body."""
    handlers = node.handlers if isinstance(node, ast.Try) else []
    return any(each.type is None or CAUGHT & _words(each.type) for each in handlers)


def _suppresses(item: ast.withitem) -> bool:
    """Return whether a `with` is suppress(ImportError)."""
    words = _words(item.context_expr)
    return "suppress" in words and bool(CAUGHT & words)


def _words(node: ast.AST) -> set[str]:
    return set(re.findall(r"\w+", ast.unparse(node)))


def _features(tree: ast.Module, imports: list[Import]) -> Iterator[Import]:
    """Yield what the features that a module uses import, at the line of their use."""
    names = {each.local: _meaning(each) for each in imports}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)):
            full = _full_name(node, names)
            for pattern, module in FEATURES.items():
                if full and pattern.fullmatch(full):
                    yield Import(node.lineno, f"import {module}", module, feature=full)


def _meaning(each: Import) -> str:
    """Return the full name of what an import defines: of `import a.b` it is a, which has b."""
    return each.top if each.local == each.top else each.full_name


def _full_name(node: ast.expr, names: dict[str, str]) -> str:
    """Return what a dotted name means, with the module that its first part was imported from; ""
    for anything else."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    before = _full_name(node.value, names) if isinstance(node, ast.Attribute) else ""
    return f"{before}.{node.attr}" if before and isinstance(node, ast.Attribute) else ""
