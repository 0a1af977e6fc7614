"""Parse TOML of anybody: what would make later code fail is refused here. And write it."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 100  # of tables and lists in each other
MAX_BITS = 1024  # of a whole number; Python prints none of more than 4,300 digits


class InvalidToml(ValueError):
    """The text is no TOML, or has values that nothing can use; the message says why."""


def parse(text: str) -> dict[str, Any]:
    """Return the table of a TOML document. Raises InvalidToml."""
    import tomllib  # few commands need it

    try:
        table = tomllib.loads(text)
        _refuse_extremes(table)
        return table
    except tomllib.TOMLDecodeError as error:
        raise InvalidToml(f"not valid TOML: {error}") from None
    except RecursionError:
        raise InvalidToml("its values are nested too deeply") from None
    except ValueError:
        raise InvalidToml("it has a number of too many digits") from None


def _refuse_extremes(table: dict[str, Any]) -> None:
    """Raise RecursionError for values that are nested too deeply: dotted keys nest without a
    recursion of the parser. Raise ValueError for numbers that are too long."""
    waiting: list[tuple[Any, int]] = [(table, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise RecursionError
        if isinstance(value, dict | list):
            values = value.values() if isinstance(value, dict) else value
            waiting += [(each, depth + 1) for each in values]
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise ValueError(value.bit_length())


def to_toml(value: Any) -> str:
    """Return a value as TOML, which reads JSON's strings, numbers, booleans and lists; of the
    characters that JSON does not escape, TOML refuses one."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write(table: dict[str, Any]) -> str:
    """Return the text of a table, without values that are None. Strings are written by to_toml:
    toml itself loses backslashes before "x"."""
    import toml  # only a start needs it

    encoder = toml.TomlEncoder()
    encoder.dump_funcs[str] = to_toml
    return toml.dumps(_without_none(table), encoder)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
