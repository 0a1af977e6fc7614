"""Write docs/schemas/ and the tables of docs/json.md from the shapes of --json, and every key into
docs/hosts-toml.md from hosts.example.toml: make schemas."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from tfdeploy.output.json_output.all_shapes import SHAPES
from tfdeploy.output.json_output.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator


def _subclasses(base: type) -> Iterator[type]:
    for each in base.__subclasses__():
        yield each
        yield from _subclasses(each)


DOCS = Path(__file__).parent
PAGE, KEYS_PAGE = DOCS / "json.md", DOCS / "hosts-toml.md"
BEGIN, END = "<!-- written by make schemas -->\n", "<!-- the end of what is written -->\n"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
REF = "#/$defs/"
SHAPE_CLASSES = {shape.__name__: shape for shape in _subclasses(Shape)}


def files() -> dict[Path, str]:
    """Return the text of every file."""
    schemas = {
        DOCS / "schemas" / f"{command}.json": json.dumps(schema(shape), indent=1) + "\n"
        for command, shape in SHAPES.items()
    }
    example = (DOCS.parent / "hosts.example.toml").read_text()
    keys = f"```toml\n{example}```\n"
    return {**schemas, **_between_marks(PAGE, tables()), **_between_marks(KEYS_PAGE, keys)}


def _between_marks(page: Path, text: str) -> dict[Path, str]:
    before, rest = page.read_text().split(BEGIN)
    return {page: before + BEGIN + text + END + rest.split(END)[1]}


def schema(shape: type) -> dict[str, Any]:
    """Return the JSON Schema of a shape."""
    made = deepcopy(_made(shape))
    for name, each in {**made.get("$defs", {}), shape.__name__: made}.items():
        for base in SHAPE_CLASSES[name].__mro__:
            if base in SHAPE_CLASSES.values():
                _describe(each["properties"], _made(base)["properties"])
    return {"$schema": DIALECT, **made}


@cache
def _made(shape: type) -> dict[str, Any]:
    adapter = TypeAdapter(shape)
    return adapter.json_schema(mode="serialization", schema_generator=_WithoutTitles)


def _describe(properties: dict[str, Any], of_base: dict[str, Any]) -> None:
    """Add what the base class says about its keys: pydantic does not look for it."""
    for key, value in of_base.items():
        if "description" in value:
            properties[key].setdefault("description", value["description"])


def tables() -> str:
    """Return a table for each command, and then one for each object in them."""
    objects: dict[str, Any] = {}
    parts = []
    for shape in dict.fromkeys(SHAPES.values()):
        made = schema(shape)
        objects |= made.get("$defs", {})
        commands = [command for command, other in SHAPES.items() if other is shape]
        links = ", ".join(f"[{command}.json](schemas/{command}.json)" for command in commands)
        made["description"] += f" Schema: {links}."
        parts.append(_table(f"### {', '.join(commands)}", made))
    parts.append("## Objects\n")
    parts += [_table(f"### {name}", objects[name]) for name in sorted(objects)]
    return "\n" + "\n".join(parts) + "\n"


class _WithoutTitles(GenerateJsonSchema):
    """Without titles that only repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _table(title: str, made: dict[str, Any]) -> str:
    rows = [
        f"| `{key}` | {_type(value)} | {value['description']} |"
        for key, value in made["properties"].items()
    ]
    head = [title, "", made["description"], ""]
    return "\n".join([*head, "| key | type | meaning |", "|---|---|---|", *rows, ""])


def _type(value: dict[str, Any]) -> str:
    """Return a type in words, with a link to the table of an object."""
    if "$ref" in value:
        name = value["$ref"].removeprefix(REF)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return " or ".join(map(_type, value["anyOf"]))
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}"
    if "additionalProperties" in value:
        values = value["additionalProperties"]
        return "object" if values is True else f"map of {_type(values)}"
    return str(value["type"])


if __name__ == "__main__":
    (DOCS / "schemas").mkdir(exist_ok=True)
    for file, text in files().items():
        file.write_text(text)
