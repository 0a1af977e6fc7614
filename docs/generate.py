"""Write docs/schemas/ and the lists of docs/json.md from the classes that --json prints, and every
key into docs/hosts-toml.md from hosts.example.toml, and the consoles of all pages from transcripts:
make schemas."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Collection, Mapping
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import console_blocks

from tfdeploy import documents
from tfdeploy.errors import TfdeployError
from tfdeploy.output.documents import classes

DOCS = Path(__file__).parent
PAGE, KEYS_PAGE = DOCS / "json.md", DOCS / "hosts-toml.md"
BEGIN, END = "<!-- written by make schemas -->\n", "<!-- the end of what is written -->\n"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
REF = "#/$defs/"
CLASSES = classes()
SIMPLE = {
    str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null",
}  # fmt: skip


def files() -> dict[Path, str]:
    """Return the text of every file."""
    schemas = {
        DOCS / "schemas" / f"{command}.json": json.dumps(schema(shape), indent=1) + "\n"
        for command, shape in CLASSES.items()
    }
    example = (DOCS.parent / "hosts.example.toml").read_text()
    keys = f"```toml\n{example}```\n"
    written = {**schemas, **_between_marks(PAGE, lists()), **_between_marks(KEYS_PAGE, keys)}
    pages = {page: written.get(page, page.read_text()) for page in console_blocks.pages()}
    texts = {page: console_blocks.filled(text) for page, text in pages.items()}
    return {**written, **{page: texts[page] for page in pages if texts[page] != pages[page]}}


def _between_marks(page: Path, text: str) -> dict[Path, str]:
    before, rest = page.read_text().split(BEGIN)
    return {page: before + BEGIN + text + END + rest.split(END)[1]}


def schema(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a class."""
    defs: dict[str, Any] = {}
    found = _object(kind, defs)
    shown = {"$defs": dict(sorted(defs.items()))} if defs else {}
    return {"$schema": DIALECT, **shown, **found}


def _object(kind: type, defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the objects of a class, and add those of all objects in it to `defs`."""
    properties = _properties(kind, defs)
    return {
        "description": " ".join(inspect.getdoc(kind).split("\n\n")[0].split()),
        "properties": properties,
        "required": [*properties],
        "title": kind.__name__,
        "type": "object",
    }


def _properties(kind: type, defs: dict[str, Any]) -> dict[str, Any]:
    types, texts = _types(kind), _texts(kind)
    found: dict[str, Any] = {}
    for name, key in documents.keys(kind).items():
        if isinstance(key, str):
            value = {**_of_type(types[name], defs), "description": texts.get(name)}
            more = {key: dict(sorted(value.items()))}
        else:
            more = _properties(key, defs)
        if not isinstance(key, str) and NoneType in get_args(types[name]):
            more = {key: _nullable(value) for key, value in more.items()}
        found |= {key: more[key] for key in more if key not in found}
    return found


def _of_type(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in SIMPLE:
        return {"type": SIMPLE[kind]}
    if origin in (UnionType, Union):
        return {"anyOf": [_of_type(each, defs) for each in arguments]}
    if origin is Literal:
        return {"enum": [*arguments], "type": "string"}
    if kind is Any:
        return {}
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        values = _of_type(arguments[1], defs)
        return {"additionalProperties": values or True, "type": "object"}
    if inspect.isclass(origin) and issubclass(origin, Collection):
        return {"items": _of_type(arguments[0], defs), "type": "array"}
    kind = documents.Problem if issubclass(kind, TfdeployError) else kind
    if not documents.is_object(kind):
        return {"type": "string"}
    if kind.__name__ not in defs:
        defs[kind.__name__] = {}
        defs[kind.__name__] |= _object(kind, defs)
    return {"$ref": REF + kind.__name__}


def _nullable(value: dict[str, Any]) -> dict[str, Any]:
    text, null = value["description"], {"type": "null"}
    either = {key: each for key, each in value.items() if key != "description"}
    options = either.get("anyOf", [either])
    options = options if null in options else [*options, null]
    return {"anyOf": options, "description": text}


def _types(kind: type) -> dict[str, Any]:
    """Return the type of each attribute. Annotations are text, and their names are often imported
    for type checkers only."""
    shown, found = documents.keys(kind), {}
    for base in _own_bases(kind):
        known = {**_imported(base.__module__), **vars(sys.modules[base.__module__])}
        texts = dict(vars(base).get("__annotations__", {}))
        for name, each in vars(base).items():
            if name in shown and isinstance(each, property | cached_property):
                function = each.fget if isinstance(each, property) else each.func
                texts[name] = function.__annotations__["return"]
        # A NamedTuple wraps the text.
        names = {name: getattr(texts[name], "__forward_arg__", texts[name]) for name in texts}
        found |= {name: eval(text, known) for name, text in names.items() if name in shown}
    return found


@cache
def _imported(module: str) -> dict[str, Any]:
    """Return the names that a module imports or defines for type checkers only."""
    text = Path(sys.modules[module].__file__).read_text()
    package = sys.modules[module].__package__
    found: dict[str, Any] = {}
    for block in (each for each in ast.parse(text).body if isinstance(each, ast.If)):
        for node in block.body if "TYPE_CHECKING" in ast.unparse(block.test) else []:
            if isinstance(node, ast.ImportFrom):
                source = f"{'.' * node.level}{node.module or ''}"
                found |= {each.asname or each.name: _import(source, package, each.name)
                          for each in node.names}  # fmt: skip
            elif isinstance(node, ast.Assign):
                known = {**vars(sys.modules[module]), **found}
                exec(compile(ast.Module([node], []), module, "exec"), known, found)
    return found


def _import(module: str, package: str, name: str) -> Any:
    source = import_module(module, package)
    return getattr(source, name, None) or _imported(source.__name__).get(name)


def _texts(kind: type) -> dict[str, str]:
    """Return what a class says of its attributes: the text below a field, or in a property."""
    found: dict[str, str] = {}
    for base in _own_bases(kind):
        node = _class_node(base)
        body = node.body if node else []
        for each, below in zip(body, [*body[1:], None], strict=True):
            if isinstance(each, ast.FunctionDef) and ast.get_docstring(each):
                found[each.name] = ast.get_docstring(each)
            if isinstance(each, ast.AnnAssign) and _is_text(below):
                found[each.target.id] = inspect.cleandoc(below.value.value)
    return {name: " ".join(text.split()) for name, text in found.items()}


def _own_bases(kind: type) -> list[type]:
    return [each for each in reversed(kind.__mro__) if each.__module__.startswith("tfdeploy.")]


def _class_node(kind: type) -> ast.ClassDef | None:
    text = Path(sys.modules[kind.__module__].__file__).read_text()
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))
    return next((node for node in nodes if node.name == kind.__name__), None)


def _is_text(node: ast.stmt | None) -> bool:
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant and isinstance(node.value.value, str)


def lists() -> str:
    """Return a list of keys for each command, and then one for each object in them."""
    commands: dict[str, dict[str, Any]] = {}
    objects: dict[str, dict[str, Any]] = {}
    for shape in dict.fromkeys(CLASSES.values()):
        names = [command for command, other in CLASSES.items() if other is shape]
        commands[", ".join(names)] = schema(shape)
        objects |= commands[", ".join(names)].get("$defs", {})
    parts = [_list(name, commands) for name in commands]
    parts += ["## Objects\n", *(_list(name, objects) for name in sorted(objects))]
    return "\n" + "\n".join(parts) + "\n"


def _list(name: str, known: dict[str, dict[str, Any]]) -> str:
    """Return the keys of a command or an object, without those of a smaller one that it extends."""
    keys = known[name]["properties"]
    text = known[name]["description"]
    if base := _base(name, known):
        text += f" The keys of [{base}](#{base.lower()}), and:"
        keys = {k: keys[k] for k in keys if keys[k] != known[base]["properties"].get(k)}
    lines = [f"- `{key}`{_suffix(value)}: {_phrase(value)}" for key, value in keys.items()]
    return "\n".join([f"### {name}", "", text, "", *lines, ""])


def _base(name: str, known: dict[str, dict[str, Any]]) -> str | None:
    """Return the largest other one whose keys are all in this one, with at most one difference."""
    mine = known[name]["properties"]
    keys = {other: known[other]["properties"] for other in known if other != name}
    smaller = [other for other in keys if len(keys[other]) > 2 and {*keys[other]} < {*mine}]
    same = [o for o in smaller if sum(keys[o][key] != mine[key] for key in keys[o]) <= 1]
    return max(same, key=lambda other: len(keys[other]), default=None)


def _phrase(value: dict[str, Any]) -> str:
    """Return a meaning as it follows a colon: without the article and the capital of a sentence."""
    text = value["description"].removesuffix(".").removeprefix("The ").removeprefix("Its ")
    first = text.partition(" ")[0]
    is_name = first == "Python" or re.search(r"[A-Z`]", first[1:])
    return text if is_name else text[:1].lower() + text[1:]


def _suffix(value: dict[str, Any]) -> str:
    """Return the type after a key; a key without one is a string."""
    return "" if value.get("type") == "string" and "enum" not in value else f" {_type(value)}"


def _type(value: dict[str, Any]) -> str:
    """Return a type in words, with a link to the list of an object."""
    if "$ref" in value:
        name = value["$ref"].removeprefix(REF)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        types = [_type(each) for each in value["anyOf"] if each != {"type": "null"}]
        return " or ".join(types) + "?" * (len(types) < len(value["anyOf"]))
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if value.get("type") == "array":
        return f"{_type(value['items'])}[]"
    if "additionalProperties" in value:
        values = value["additionalProperties"]
        return "object" if values is True else f"{{{_type(values)}}}"
    return str(value["type"])


if __name__ == "__main__":
    (DOCS / "schemas").mkdir(exist_ok=True)
    for file, text in files().items():
        file.write_text(text)
