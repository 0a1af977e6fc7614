"""hosts.toml: read, checked key by key, and refused with a sentence before anything is touched."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, TypeVar

import toml
from pydantic import ValidationError

from tfdeploy.cluster import JOBS
from tfdeploy.errors import InventoryError
from tfdeploy.host_tables import entries
from tfdeploy.tables import DataSet as DataSet
from tfdeploy.tables import File, Table
from tfdeploy.tables import Host as Host
from tfdeploy.tables import HostSettings as HostSettings
from tfdeploy.tables import Inventory as Inventory
from tfdeploy.tables import JobTraining as JobTraining
from tfdeploy.tables import Restart as Restart
from tfdeploy.tables import RestartSettings as RestartSettings
from tfdeploy.tables import Source as Source
from tfdeploy.tables import Training as Training

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = {
    "bool_type": "expected true or false",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "int_type": "expected a whole number",
    "string_type": "expected text in quotes",
    "tuple_type": "expected a list",
}
UNQUOTED = re.compile(r"^ *\[ *hosts\.[^]\"']*\[", re.MULTILINE)
UNQUOTED_HINT = 'a name with brackets stands in quotes: [hosts."gpu[01-16]"]'
OF_A_KEY = "[key]"  # how pydantic marks that a table's name is wrong, not what it holds
T = TypeVar("T", bound=Table)


def load(file: Path) -> Inventory:
    """Read and check `file`. Raises InventoryError, naming the file, the key path and the value."""
    return parse(_read(file), file)


def parse(text: str, file: Path) -> Inventory:
    """Check the text of a hosts.toml; `file` stands in messages and anchors relative paths."""
    table = _toml(text, file)
    problems: list[str] = []
    written = _checked(File, table, (), problems)
    hosts = _hosts(table, problems)
    if problems or written is None:
        sentences = dict.fromkeys(f"{file}: {problem}" for problem in problems)
        raise InventoryError("\n".join(sentences), "hosts.example.toml shows every key")
    _refuse_one_machine_twice(hosts, file)
    _refuse_data_in_data(written.data, file)
    kept = {key: getattr(written, key) for key in written.model_fields_set - {"defaults", "hosts"}}
    return Inventory(file=file.absolute(), hosts=hosts, **kept)


def dump(inventory: Inventory) -> str:
    """The inventory as the text of a hosts.toml, [defaults] laid under each host."""
    table = inventory.model_dump(mode="json", exclude={"file", "hosts"}, exclude_unset=True)
    hosts = {
        host.name: host.model_dump(mode="json", exclude={"name"}, exclude_unset=True)
        for host in inventory.hosts
    }
    return toml.dumps({**_without_none(table), "hosts": _without_none(hosts)}, _Encoder())


class _Encoder(toml.TomlEncoder):  # type: ignore[type-arg]
    """toml's own string writer loses backslashes before "x"; JSON's strings are valid TOML."""

    def __init__(self) -> None:
        super().__init__()
        self.dump_funcs[str] = _quoted


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(file: Path) -> str:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InventoryError(
            f"{file}: there is no such file", "copy hosts.example.toml to it, or say --hosts FILE"
        ) from None
    except OSError as error:
        raise InventoryError(f"{file}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InventoryError(
            f"{file}: line {line} is not UTF-8 (byte 0x{error.object[error.start]:02x}), "
            "which TOML must be"
        ) from None
    if not text.strip():
        raise InventoryError(f"{file}: the file is empty", "hosts.example.toml shows every key")
    return text


def _toml(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = UNQUOTED_HINT if UNQUOTED.search(text) else ""
        raise InventoryError(f"{file}: not TOML: {error}", hint) from None


def _checked(model: type[T], table: Any, prefix: tuple[str, ...], problems: list[str]) -> T | None:
    try:
        return model.model_validate(table)
    except ValidationError as error:
        problems += [_sentence(detail, prefix) for detail in error.errors()]
        return None


def _sound_defaults(table: dict[str, Any]) -> dict[str, Any]:
    """[defaults] without the keys that it holds wrongly: those are reported where they stand."""
    given = table.get("defaults")
    defaults = given if isinstance(given, dict) else {}
    try:
        HostSettings.model_validate(defaults)
    except ValidationError as error:
        wrong = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
        return {key: value for key, value in defaults.items() if key not in wrong}
    return defaults


def _hosts(table: dict[str, Any], problems: list[str]) -> tuple[Host, ...]:
    """What is wrong in one table is said once, of however many hosts it is."""
    tables = table.get("hosts")
    named = tables if isinstance(tables, dict) else {}
    found = entries(named, _sound_defaults(table), problems)
    hosts: dict[str, Host | None] = {}
    wrong: set[str] = set()
    for entry in sorted(found, key=lambda entry: bool(entry.among)):  # first, what is of many
        if not wrong & {entry.table, entry.among}:
            host = _checked(Host, entry.keys, ("hosts", entry.table), problems)
            hosts[entry.keys["name"]] = host
            wrong |= set() if host else {entry.table}
    checked = (hosts.get(entry.keys["name"]) for entry in found)
    return tuple(host for host in checked if host)


def _refuse_one_machine_twice(hosts: tuple[Host, ...], file: Path) -> None:
    seen: dict[Any, str] = {}
    for host in hosts:
        ssh = ((host.hostname or host.name).lower(), host.port or 22)
        where = "local" if host.is_local else ssh
        first = seen.setdefault(where, host.name)
        if first != host.name:
            how = 'transport = "local"' if host.is_local else f"{where[0]} port {where[1]}"
            raise InventoryError(
                f"{file}: hosts.{host.name} is the same machine as hosts.{first} ({how})",
                "give one host all of its tasks: ps = 1 and workers = 2 can stand together",
            )


def _refuse_data_in_data(data: dict[str, DataSet], file: Path) -> None:
    for place in data:
        for outer in data:
            if place.startswith(outer + "/"):
                raise InventoryError(
                    f"{file}: data.{place} would lie in data.{outer}, which is read-only",
                    "give one of them a place of its own, or both in one data set",
                )


def _sentence(detail: Any, prefix: tuple[str, ...]) -> str:
    loc = (*prefix, *(part for part in detail["loc"] if part != OF_A_KEY))
    path = ".".join(str(part) for part in loc)
    found = _shown(detail["input"])
    match detail["type"]:
        case "missing":
            return f"{path} is missing"
        case "extra_forbidden":
            return f"{path}: unknown key{_suggestion(loc)}"
        case "value_error" if loc in (prefix, ("training",)):
            return f"{path}: {detail['ctx']['error']}"
        case "value_error":
            return f"{path}: found {found}; {detail['ctx']['error']}"
        case "too_short":
            return f"{path}: found nothing, expected at least one"
        case _:
            said = detail["msg"].replace("Input should", "it should")
            expected = EXPECTED.get(detail["type"], said)
            return f"{path}: found {found}; {expected}"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _suggestion(loc: tuple[Any, ...]) -> str:
    tables: dict[str, type[Table]] = {
        "source": Source, "data": DataSet, "training": Training, "restart": Restart,
        "defaults": HostSettings, "hosts": Host,
    }  # fmt: skip
    model = tables.get(str(loc[0]), File) if len(loc) > 1 else File
    if len(loc) == 3 and loc[1] in JOBS:
        model = JobTraining if model is Training else RestartSettings
    allowed = [name for name in model.model_fields if name != "name"]
    close = difflib.get_close_matches(str(loc[-1]), allowed, n=1)
    return f'; did you mean "{close[0]}"?' if close else f"; allowed are {', '.join(allowed)}"


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
