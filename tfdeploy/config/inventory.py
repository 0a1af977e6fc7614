"""Read and validate hosts.toml: every wrong key is reported, before anything is changed."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from tfdeploy.config import schema, toml_text
from tfdeploy.config.cluster import JOBS
from tfdeploy.config.host_patterns import expand_host_tables
from tfdeploy.config.hosts_file import open_hosts_file
from tfdeploy.config.models import DataSet as DataSet
from tfdeploy.config.models import Host as Host
from tfdeploy.config.models import HostSettings as HostSettings
from tfdeploy.config.models import HostsFile, Table
from tfdeploy.config.models import Inventory as Inventory
from tfdeploy.config.models import JobTraining as JobTraining
from tfdeploy.config.models import Notify as Notify
from tfdeploy.config.models import PythonEnvironment as PythonEnvironment
from tfdeploy.config.models import Restart as Restart
from tfdeploy.config.models import RestartSettings as RestartSettings
from tfdeploy.config.models import Source as Source
from tfdeploy.config.models import Training as Training
from tfdeploy.errors import InventoryError
from tfdeploy.formatting.humanize import mask_urls

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = {
    "bool_type": "expected true or false",
    "dict_type": "expected the table [{path}]",
    "model_type": "expected the table [{path}]",
    "int_type": "expected a whole number",
    "string_type": "expected text in quotes",
    "tuple_type": "expected a list",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "greater_than": "expected more than {gt:g}",
    "greater_than_equal": "expected at least {ge:g}",
    "less_than_equal": "expected at most {le:g}",
}
"""What to expect, by pydantic's name of the error; in braces, pydantic's values and the path."""
MAX_FILE_BYTES = 16_000_000  # a file of 10,000 hosts has 3 MB
MAX_SHOWN_PATH, MAX_SHOWN_VALUE = 200, 60  # characters
UNQUOTED = re.compile(r"^ *\[ *hosts\.[^]\"']*\[", re.MULTILINE)
UNQUOTED_TEXT = re.compile(r"^ *\w+ *= *(?!true|false|inf|nan)[A-Za-z~/]", re.MULTILINE)
TEXT_HINT = 'put text in quotes: project = "digits"'
UNQUOTED_HINT = 'put a name with brackets in quotes: [hosts."gpu[01-16]"]'
KEY_MARK = "[key]"  # pydantic's mark in a path: the table's name is wrong, not its content
T = TypeVar("T", bound=Table)


def load(file: Path) -> Inventory:
    """Read and validate `file`. Raises InventoryError with the file, the key and the value."""
    return parse(_read(file), file)


def parse(text: str, file: Path) -> Inventory:
    """Validate the text of a hosts.toml; `file` is its path, for messages and relative paths.

    Raises InventoryError with everything that is wrong.
    """
    table = _parse_toml(text, file)
    problems: list[str] = []
    written = _validate(HostsFile, table, (), problems)
    hosts = _validate_hosts(table, problems)
    if problems or written is None:
        lines = dict.fromkeys(f"{file}: {problem}" for problem in problems)
        raise InventoryError("\n".join(lines), "tfdeploy example shows every key")
    _refuse_one_machine_twice(hosts, file)
    if written.data:
        _refuse_data_in_data(written.data, file)
    keys = written.given - {"defaults", "hosts"}
    fields: dict[str, Any] = {key: getattr(written, key) for key in keys}
    return Inventory(file=file.absolute(), hosts=hosts, given=keys | {"file", "hosts"}, **fields)


def parse_record(text: str, file: Path, hosts_file: Path) -> Inventory:
    """Do as `parse` with `file`, the hosts.toml of a run's record. Relative paths are those of
    `hosts_file`. Raises as `parse` does."""
    return parse(text, file).copy_with({"file": hosts_file.absolute()})


def _read(file: Path) -> str:
    try:
        with open_hosts_file(file) as content:
            data = content.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InventoryError(f"{file}: the file is larger than 16 MB, so it is no hosts.toml")
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InventoryError(f"{file}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InventoryError(
            f"{file}: line {line} is not UTF-8 (byte 0x{error.object[error.start]:02x})",
            "save the file as UTF-8, which TOML requires",
        ) from None
    if not text.strip():
        raise InventoryError(f"{file}: the file is empty", "tfdeploy example shows every key")
    return text


def _parse_toml(text: str, file: Path) -> dict[str, Any]:
    try:
        return toml_text.parse(text)
    except toml_text.InvalidToml as error:
        hints = ((UNQUOTED, UNQUOTED_HINT), (UNQUOTED_TEXT, TEXT_HINT))
        hint = next((hint for pattern, hint in hints if pattern.search(text)), "")
        raise InventoryError(f"{file}: {error}", hint) from None


def _validate(model: type[T], table: Any, prefix: tuple[str, ...], problems: list[str]) -> T | None:
    """Return the table as a model, or None after adding every problem; `prefix` is its path."""
    try:
        return schema.validate(model, table)
    except ValidationError as error:
        problems += [_describe(detail, prefix) for detail in error.errors()]
        return None


def _valid_defaults(table: dict[str, Any]) -> dict[str, Any]:
    """Return [defaults] without its wrong keys: they are reported once, not for each host."""
    value = table.get("defaults")
    defaults = value if isinstance(value, dict) else {}
    try:
        schema.validate(HostSettings, defaults)
    except ValidationError as error:
        wrong = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
        return {key: value for key, value in defaults.items() if key not in wrong}
    return defaults


def _validate_hosts(table: dict[str, Any], problems: list[str]) -> tuple[Host, ...]:
    """Return the valid hosts. A problem in a table of several hosts is reported once."""
    value = table.get("hosts")
    tables = value if isinstance(value, dict) else {}
    entries = expand_host_tables(tables, _valid_defaults(table), problems)
    hosts: dict[str, Host | None] = {}
    wrong_tables: set[str] = set()
    # A host with two tables comes last: it is skipped if its table of several hosts is wrong.
    for entry in sorted(entries, key=lambda entry: bool(entry.pattern_table)):
        if not wrong_tables & {entry.table, entry.pattern_table}:
            host = _validate(Host, entry.keys, ("hosts", entry.table), problems)
            hosts[entry.keys["name"]] = host
            wrong_tables |= set() if host else {entry.table}
    in_order = (hosts.get(entry.keys["name"]) for entry in entries)
    return tuple(host for host in in_order if host)


def _refuse_one_machine_twice(hosts: tuple[Host, ...], file: Path) -> None:
    first_hosts: dict[str, str] = {}
    for host in hosts:
        first = first_hosts.setdefault(host.machine, host.name)
        if first != host.name:
            raise InventoryError(
                f"{file}: hosts.{host.name} is the same machine as hosts.{first} ({host.machine})",
                "keep one of them and give it all tasks: a host may have ps = 1 and workers = 2",
            )


def _refuse_data_in_data(data: dict[str, DataSet], file: Path) -> None:
    for place in data:
        for outer in data:
            if place.startswith(outer + "/"):
                raise InventoryError(
                    f"{file}: data.{place} is inside data.{outer}, which is read-only for tasks",
                    "give one of them another place, or make them one data set",
                )


def _describe(detail: Any, prefix: tuple[str, ...]) -> str:
    """Return the message for one of pydantic's errors: what was found, what was expected."""
    loc = (*prefix, *(part for part in detail["loc"] if part != KEY_MARK))
    path = _shorten(".".join(str(part) or '""' for part in loc), MAX_SHOWN_PATH)
    value = json.dumps(detail["input"], default=str, ensure_ascii=False)
    found = f"found {_shorten(value, MAX_SHOWN_VALUE)}"
    if loc[0] == "notify":  # the path of a webhook's URL is its password
        found = mask_urls(found)
    match detail["type"]:
        case "missing":
            return f"{path} is missing"
        case "extra_forbidden":
            return f"{path}: unknown key; {_suggest_key(loc)}"
        case "value_error" if loc in (prefix, ("training",)):
            return f"{path}: {detail['ctx']['error']}"
        case "value_error":
            return f"{path}: {found}; {detail['ctx']['error']}"
        case "too_short":
            return f"{path} is empty; expected at least one entry"
        case "literal_error":
            choices = detail["ctx"]["expected"].replace("'", '"')
            return f"{path}: {found}; expected {choices}"
        case kind if kind in EXPECTED:
            values = {**detail.get("ctx", {}), "path": path}
            return f"{path}: {found}; {EXPECTED[kind].format(**values)}"
        case _:
            return f"{path}: {found}; {detail['msg']}"


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _suggest_key(loc: tuple[Any, ...]) -> str:
    """Return the allowed key nearest to the unknown one, else all allowed keys of its table."""
    tables: dict[str, type[Table]] = {
        "source": Source, "data": DataSet, "env": PythonEnvironment, "training": Training,
        "restart": Restart, "notify": Notify, "defaults": HostSettings, "hosts": Host,
    }  # fmt: skip
    model = tables.get(str(loc[0]), HostsFile) if len(loc) > 1 else HostsFile
    if len(loc) == 3 and loc[1] in JOBS:
        model = JobTraining if model is Training else RestartSettings
    allowed = [name for name in model.key_names() if name != "name" or model is JobTraining]
    close = difflib.get_close_matches(str(loc[-1]), allowed, n=1)
    return f'did you mean "{close[0]}"?' if close else f"expected one of {', '.join(allowed)}"
