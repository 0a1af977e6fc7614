"""Read from a program's text what it uses: names, imports, command-line flags, and words. Pure."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# What TensorFlow and Keras import only when the feature is used. TensorFlow 2.21 does not require
# these packages any more.
KERASES = r"(tensorflow\.(compat\.v[12]\.)?keras|keras|tf_keras)\."
FEATURES = {
    re.compile(KERASES + r"callbacks\.TensorBoard"): "tensorboard",
    re.compile(r"tensorflow\.(compat\.v2\.)?summary\.(audio|histogram|image|scalar|text)"): (
        "tensorboard"
    ),
    re.compile(KERASES + r"utils\.plot_model"): "pydot",
    re.compile(KERASES + r"(utils|preprocessing\.image)\.(load_img|save_img|array_to_img)"): "PIL",
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


def read_imports(tree: ast.Module) -> tuple[Import, ...]:
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
            for body, continues in _bodies(node):
                yield from _imports(body, is_optional=is_optional or continues)


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
    continues = (
        (isinstance(node, ast.If) and not _is_main(node.test))
        or (isinstance(node, ast.With) and any(map(_suppresses, node.items)))
        or isinstance(node, ast.ExceptHandler)
    )
    for name, value in ast.iter_fields(node):
        blocks = value if isinstance(value, list) else []
        statements = [each for each in blocks if isinstance(each, ast.stmt)]
        if statements:
            yield statements, continues or (name == "body" and _is_tried(node))
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


# The functions of argparse, optparse and click that define a flag.
DEFINE_FLAG = {"add_argument", "add_option", "option"}
ABSL_PREFIX = "DEFINE_"  # of the functions of absl.flags and tf.app.flags
REQUIRE_FLAG = {"mark_flag_as_required", "mark_flags_as_required"}  # of absl.flags
CHECKPOINT_DIR = "checkpoint_dir"
ADD_TO_LIST = {"append", "insert", "extend"}
FOLDER = re.compile(r"(?!/)[\w./-]{1,100}")
JOBS = {"ps", "worker", "chief", "master", "evaluator"}
# The modules by which programs use Keras. Keras 2 is tf_keras, or tf.keras if a variable says so.
KERAS, TF_KERAS, KERAS_2 = "keras", "tensorflow.keras", "tf_keras"
KERAS_MODULE = re.compile(r"(?:(keras|tf_keras)|tensorflow\.(?:compat\.v[12]\.)?keras)(?:\..*)?")
# Arguments of Keras' fit that the fit of another library does not have.
OF_KERAS_FIT = {"epochs", "initial_epoch", "steps_per_epoch", "validation_data", "validation_split"}


@dataclass(frozen=True)
class Syntax:
    """What the text of a module has.

    `names` are its identifiers, `keywords` the names in its calls' NAME=VALUE, `strings` its text
    constants except docstrings, and `imports` its imports. `flags` are those that it defines, such
    as "--job_name", in their order, with whether they are required. `positionals` are argparse's
    arguments without dashes.
    `argv_words` is the number of words that it takes from sys.argv by their position.
    `checkpoint_dir` is the text that it uses under this name, "" if it has none. `workers` is the
    number of workers in a cluster that the text lists, 0 if it lists none. `added_folders` are
    names of folders that it adds to Python's path, such as "lib". `kerases` are those of KERAS,
    TF_KERAS and KERAS_2 that it uses, and `fit_line` is the line of its first call of Keras' fit, 0
    if it has none.
    """

    names: frozenset[str] = frozenset()
    keywords: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    imports: tuple[Import, ...] = ()
    flags: Mapping[str, bool] | None = None
    positionals: tuple[str, ...] = ()
    argv_words: int = 0
    checkpoint_dir: str = ""
    workers: int = 0
    added_folders: tuple[str, ...] = ()
    kerases: frozenset[str] = frozenset()
    fit_line: int = 0


def read(text: str) -> Syntax:
    """Return what a module has. Raises SyntaxError if it is not Python 3."""
    try:
        tree = ast.parse(text)
    except (ValueError, RecursionError) as error:  # a NUL character, or nested too deeply
        raise SyntaxError(str(error)) from None
    nodes = [*ast.walk(tree)]
    defining = DEFINE_FLAG | {*_aliases(nodes)}
    flags: dict[str, bool] = {}
    positionals: list[str] = []
    imports = read_imports(tree)
    for node in nodes:
        if isinstance(node, ast.Call):
            for flag, required in _flags(node, defining):
                flags[flag] = required
            flags |= dict.fromkeys(_required_by_absl(node), True)
            positionals += _positionals(node, defining)
    return Syntax(
        names=frozenset(_names(nodes)),
        keywords=frozenset(
            node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg
        ),
        strings=frozenset(_strings(nodes)),
        imports=imports,
        flags=flags,
        positionals=tuple(positionals),
        argv_words=max(map(_argv_words, nodes), default=0),
        checkpoint_dir=next(_checkpoint_dirs(nodes), ""),
        workers=max(map(_workers, nodes), default=0),
        added_folders=tuple(_added_folders(nodes)),
        kerases=frozenset(_kerases(nodes, imports)),
        fit_line=min(filter(None, map(_fit_line, nodes)), default=0),
    )


def _aliases(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the names of variables for add_argument, as in `add = parser.add_argument`."""
    for node in nodes:
        if isinstance(node, ast.Assign) and _name(node.value) in DEFINE_FLAG:
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _name(node: ast.AST) -> str:
    """Return the last part of a dotted name; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _flags(call: ast.Call, defining: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield each flag that a call defines, and whether it is required."""
    words = [_text(argument) for argument in call.args]
    required = any(
        keyword.arg == "required" and getattr(keyword.value, "value", False) is True
        for keyword in call.keywords
    )
    if _name(call.func).startswith(ABSL_PREFIX) and words and words[0]:
        yield f"--{words[0]}", required
    elif _name(call.func) in defining:
        yield from ((word, required) for word in words if word.startswith("--"))


def _positionals(call: ast.Call, defining: set[str]) -> Iterator[str]:
    word = _text(call.args[0]) if call.args else ""
    if _name(call.func) in defining and word and not word.startswith("-"):
        yield word


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _names(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if name := _name(node):
            yield name
        if isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]


def _strings(nodes: list[ast.AST]) -> Iterator[str]:
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    yield from (_text(node) for node in nodes if id(node) not in prose and _text(node))


def _required_by_absl(call: ast.Call) -> Iterator[str]:
    if _name(call.func) in REQUIRE_FLAG:
        yield from (
            f"--{word}" for node in call.args for word in map(_text, ast.walk(node)) if word
        )


def _checkpoint_dirs(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield texts that are called checkpoint_dir: as an argument, or as a variable."""
    for node in nodes:
        if isinstance(node, ast.keyword) and node.arg == CHECKPOINT_DIR and _text(node.value):
            yield _text(node.value)
        elif isinstance(node, ast.Assign) and CHECKPOINT_DIR in map(_name, node.targets):
            yield from filter(None, [_text(node.value)])


def _added_folders(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the texts in calls such as sys.path.append(os.path.join(here, "lib"))."""
    for node in nodes:
        match node:
            case ast.Call(ast.Attribute(owner, attr), args) if _name(owner) == "path":
                parts = args if attr in ADD_TO_LIST else []
                words = (_text(each) for part in parts for each in ast.walk(part))
                yield from filter(FOLDER.fullmatch, words)


def _kerases(nodes: list[ast.AST], imports: tuple[Import, ...]) -> Iterator[str]:
    for each in imports:
        if not each.level and (match := KERAS_MODULE.fullmatch(each.full_name)):
            yield match[1] or TF_KERAS
    if any(isinstance(node, ast.Attribute) and node.attr == "keras" for node in nodes):
        yield TF_KERAS


def _fit_line(node: ast.AST) -> int:
    """Return the line of a call such as model.fit(x, epochs=3); 0 for anything else."""
    match node:
        case ast.Call(ast.Attribute(_, "fit"), _, keywords):
            return node.lineno if {each.arg for each in keywords} & OF_KERAS_FIT else 0
    return 0


def _workers(node: ast.AST) -> int:
    """Return how many workers a dict such as {"ps": ["a:1"], "worker": ["b:1"]} lists; 0 for
    anything else."""
    keys = [_text(key) for key in node.keys if key] if isinstance(node, ast.Dict) else []
    if not isinstance(node, ast.Dict) or "worker" not in keys or not {*keys} <= JOBS:
        return 0
    workers = getattr(node.values[keys.index("worker")], "elts", [])
    return 0 if any(isinstance(each, ast.Starred) for each in workers) else len(workers)


def _argv_words(node: ast.AST) -> int:
    """Return how many words of sys.argv a node takes: 2 in `argv[2]` and in `a, b = argv[1:]`."""
    if isinstance(node, ast.Subscript) and _name(node.value) == "argv":
        index = getattr(node.slice, "value", None)
        return index if isinstance(index, int) else 0
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        sliced, target = node.value, node.targets[0]
        if _name(sliced.value) == "argv" and isinstance(target, ast.Tuple):
            return len(target.elts) if isinstance(sliced.slice, ast.Slice) else 0
    return 0
