"""The types of the values in hosts.toml; each refuses a wrong value with a message."""

from __future__ import annotations

import ipaddress
import math
import re
import shlex
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from tfdeploy.config import ANY_SIGNAL, AUTO_PORTS, PER_GPU

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_COMMAND = 50_000  # characters: splitting takes time by the square of the length
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
RESERVED_VARIABLES = (
    *("TF_CONFIG", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("TFDEPLOY_NAME", "TFDEPLOY_PEERS", "TFDEPLOY_RELEASE", "TFDEPLOY_RUN", "TFDEPLOY_TASK"),
    *("TFDEPLOY_TRIAL", "TFDEPLOY_LOCAL_PORTS", "TFDEPLOY_SOURCE_PORTS"),
)


def _check_address(value: str) -> str:
    """Accept a host name, an IPv4 or an IPv6 address, without port, user or scheme."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        label = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})"
        looks_like_ipv4 = re.fullmatch(r"[0-9.]+", value)
        if looks_like_ipv4 or not re.fullmatch(rf"{label}(\.{label})*\.?", value):
            raise ValueError(
                "expected a host name or an IP address, without user, port or scheme"
            ) from None
        return value
    if address.is_unspecified:
        raise ValueError(
            "expected an address that other hosts can connect to; this one is only for listening"
        )
    return str(address)  # one spelling, so that equal addresses are found


def _matching(pattern: str, expected: str) -> AfterValidator:
    """Return the check of a text that a regular expression has to match."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


def _check_plain_word(value: str) -> str:
    if value.startswith("-") or not value.isprintable() or not value.strip():
        raise ValueError('expected printable text that does not start with "-"')
    return value


def _check_local_path(value: str) -> str:
    if not value.isprintable() or not value.strip():
        raise ValueError("expected the path of a file or a folder")
    if value.startswith("~") and value != "~" and not value.startswith("~/"):
        raise ValueError('expected "~/" for your home directory, or the whole path')
    return value


def _check_directory(value: str) -> str:
    """Accept a folder that is absolute or below the home directory; `{host}` in it stands for the
    host's name."""
    inside = value.removeprefix("~/").strip("/")
    unknown = re.search(r"\{[^}]*\}?|\}", value.replace("{host}", ""))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]}; expected {{host}}, the host's name")
    if not value.startswith(("~/", "/")) or inside in ("", ".") or ".." in inside.split("/"):
        raise ValueError('expected a folder such as "~/.tfdeploy" or "/scratch/me/tfdeploy"')
    return value


def _check_checkpoint_dir(value: str) -> str:
    """Accept only a path that means the same to the script, which gets it as it is, and to
    tfdeploy."""
    if URL.match(value):
        raise ValueError(
            "expected a folder on the chief's disk, from which tfdeploy fetches checkpoints, "
            "not a URL"
        )
    if not value or value.startswith("~") or ".." in value.split("/") or "\0" in value:
        raise ValueError(
            'expected a path without "~" and "..", absolute or relative to the task\'s directory'
        )
    return value


def _check_outputs(value: tuple[str, ...]) -> tuple[str, ...]:
    """Accept .gitignore patterns inside a task's directory, and absolute folders."""
    for pattern in value:
        path = pattern.removeprefix("!")
        if URL.match(path):
            raise ValueError(f'"{pattern}" is a URL; expected files on the task\'s own disk')
        if not path.strip() or not path.isprintable() or path[0] == "~" or ".." in path.split("/"):
            raise ValueError(
                'expected patterns such as "models/", or absolute folders, without "~" and ".."'
            )
        if pattern.startswith("!/") or (path[0] == "/" and not path.strip("/")):
            raise ValueError(f'"{pattern}": expected an absolute folder such as "/scratch/models"')
    if value and value[0].startswith("!"):
        raise ValueError(
            f'"{value[0]}" excludes files; expected a pattern before it that includes some'
        )
    return value


def _check_place(value: str) -> str:
    """Accept a path inside the task's directory that has only one spelling."""
    names = value.split("/")
    if not value.isprintable() or {"", ".", ".."} & {*names} or value[0] == "~" or "\\" in value:
        raise ValueError('expected a path inside the task\'s directory, such as "data/mnist"')
    return value


def _check_data_place(value: str) -> str:
    """Check a place; of a folder elsewhere, show how to name it."""
    try:
        return _check_place(value)
    except ValueError as error:
        if not value.isprintable() or not value.startswith(("/", "~/", "../")):
            raise
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", value.rstrip("/").rpartition("/")[2]).strip("-")
        lines = f'[data.{name or "data"}] and path = "{value}"'
        raise ValueError(f"{error}; for another folder, two lines: {lines}") from None


def _parse_ports(value: Any) -> Any:
    """Convert `"2222-2299"`, `2222` (only that port), a list or "auto" to ports in the order of
    their use."""
    if value == "auto":
        return AUTO_PORTS
    if value == []:
        raise ValueError('expected at least one port, or "auto"')
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, str):
        span = re.fullmatch(r"(\d{1,5})-(\d{1,5})", value)
        if not span or int(span[1]) > int(span[2]):
            raise ValueError(
                'expected a range such as "2222-2299", a list such as [2222, 2223], or "auto"'
            )
        if not 1 <= int(span[1]) <= int(span[2]) <= 65535:
            raise ValueError("expected ports from 1 to 65535")
        return tuple(range(int(span[1]), int(span[2]) + 1))
    return tuple(value) if isinstance(value, list) else value


def _check_distinct(value: tuple[int, ...]) -> tuple[int, ...]:
    found: set[int] = set()
    for number in value:
        if number in found:
            raise ValueError(f"expected each number once, but {number} occurs twice")
        found.add(number)
    return value


def _split_words(value: Any) -> Any:
    """Split a string into words as a shell does; the command itself never runs in a shell."""
    if not isinstance(value, str | list | tuple):
        raise ValueError("expected text in quotes, or a list of words")
    if not isinstance(value, str):
        return _list_to_tuple(value)
    if len(value) > MAX_COMMAND:
        raise ValueError(f"expected at most {MAX_COMMAND:,} characters; or a list of words")
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise ValueError(f"can't be split into words: {str(error).lower()}") from None


def _check_command(value: tuple[str, ...]) -> tuple[str, ...]:
    if value and not value[0]:
        raise ValueError("expected a program as the first word")
    return _check_words(value)


def _check_words(value: tuple[str, ...]) -> tuple[str, ...]:
    if any("\0" in word for word in value):
        raise ValueError("expected words without a NUL character")
    return value


def _check_modules(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f'"{name}" is not the name of a module; expected one such as "jax"')
    return tuple(dict.fromkeys(value))


def _split_target(value: Any) -> Any:
    """Split a command into words; a URL is one word, whatever characters it has."""
    is_url = isinstance(value, str) and URL.match(value)
    return (value,) if is_url else _split_words(value)


def _check_target(value: tuple[str, ...]) -> tuple[str, ...]:
    """Accept a command, or a URL that a webhook has."""
    _check_command(value)
    if not URL.match(value[0]):
        return value
    if len(value) > 1:
        raise ValueError("expected a command, or a URL alone")
    try:
        parts = urlsplit(value[0])
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not re.fullmatch(r"[!-~]+", value[0]) or "@" in parts.netloc:
        raise ValueError(
            "expected a command, or an http:// or https:// URL without user and password"
        )
    return value


def _list_to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _check_exit(value: Any) -> Any:
    """Accept an exit code, the name of a signal, or "signals" for every signal."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= 255:
            raise ValueError("expected an exit code from 1 to 255")
    elif not isinstance(value, str) or value not in (ANY_SIGNAL, *signal.Signals.__members__):
        raise ValueError(
            'expected an exit code, a signal such as "SIGKILL", or "signals" for every signal'
        )
    return value


def _parse_gpus(value: Any, check_ids: ValidatorFunctionWrapHandler) -> Any:
    """Convert a count n to the range of the ids 0 to n-1; a list of ids becomes a tuple."""
    if isinstance(value, list | tuple):
        return check_ids(tuple(value))
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 64:
        raise ValueError("expected a count from 0 to 64, or a list of ids such as [0, 1]")
    return range(value)


def _parse_workers(value: Any) -> Any:
    if value == "per-gpu":
        return PER_GPU
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 1024:
        raise ValueError('expected a count from 0 to 1024, or "per-gpu"')
    return value


def _check_variables(names: Iterable[str]) -> None:
    for name in names:
        if name in RESERVED_VARIABLES:
            raise ValueError(f"tfdeploy itself sets {name}; remove it")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is not a valid name of an environment variable")


def _check_environment(value: dict[str, str]) -> dict[str, str]:
    _check_variables(value)
    for name in value:
        if "\0" in value[name]:
            raise ValueError(f"expected a value of {name} without a NUL character")
    return value


def _check_secrets(value: tuple[str, ...]) -> tuple[str, ...]:
    _check_variables(value)
    return tuple(dict.fromkeys(value))


def _check_requirements(value: Any) -> Any:
    """Accept the path of a file, or a list of requirements such as "numpy>=2"."""
    if isinstance(value, str):
        return _check_local_path(value)
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError('expected a file such as "requirements.txt", or a list of packages')
    for each in value:
        if not each.isprintable() or not re.match(r"[A-Za-z0-9]", each):
            raise ValueError(f'"{each}": expected a package such as "tensorflow" or "numpy>=2"')
    return tuple(value)


def _check_params(value: dict[str, Any]) -> dict[str, Any]:
    """Accept a list of values for each parameter, or a range."""
    for name, found in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name):
            raise ValueError(f'"{name}": expected the name of an option, without "--"')
        _check_values(name, found)
    return value


def _check_values(name: str, found: Any) -> None:
    if isinstance(found, dict):
        numbers = [found.get(key) for key in ("from", "to")]
        is_range = {*found} <= {"from", "to", "log"} and isinstance(found.get("log", True), bool)
        if not is_range or not all(map(_is_finite, numbers)):
            raise ValueError(
                f"{name}: expected from and to, two numbers, and optionally log = true"
            )
        if not found["from"] < found["to"] or (found.get("log") and found["from"] <= 0):
            raise ValueError(f"{name}: expected from < to, and from > 0 with log = true")
    elif not found or not isinstance(found, list) or any(map(_is_no_value, found)):
        raise ValueError(f"{name}: expected a list of numbers, texts, true and false, or a range")


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_no_value(value: Any) -> bool:
    return not isinstance(value, str | int | float) or (
        isinstance(value, str) and not value.isprintable()
    )


def _check_objective(value: str) -> str:
    name, _, mode = value.rpartition(":")
    if not name.strip() or not name.isprintable() or mode not in ("min", "max"):
        raise ValueError('expected the name of a scalar and min or max: "val_accuracy:max"')
    return value


def _check_setup(value: tuple[str, ...]) -> tuple[str, ...]:
    if any(not command.strip() or "\0" in command for command in value):
        raise ValueError("expected commands for a shell")
    return value


Address = Annotated[str, AfterValidator(_check_address)]
CheckpointDir = Annotated[str, AfterValidator(_check_checkpoint_dir)]
Directory = Annotated[str, AfterValidator(_check_directory)]
Place = Annotated[str, AfterValidator(_check_place)]
DataPlace = Annotated[str, AfterValidator(_check_data_place)]
PlainWord = Annotated[str, AfterValidator(_check_plain_word)]
# ssh puts these two into a shell's command line: source, ssh(1), ProxyJump and %r.
User = Annotated[
    PlainWord, _matching(r"[\w.@%+-]+", "the name of a user: letters, digits and . _ - + @ %")
]
Jump = Annotated[
    PlainWord,
    _matching(
        r"(?!.*[@,/]-)[\w.@%+:/,\[\]-]+", "[USER@]HOST[:PORT], or several of them with commas"
    ),
]
LocalPath = Annotated[str, AfterValidator(_check_local_path)]
Name = Annotated[
    str,
    _matching(
        r"(?!agent$)[A-Za-z0-9][A-Za-z0-9._-]*",
        'letters, digits, ".", "_" and "-", first a letter or a digit, and not "agent"',
    ),
]
# Source: TensorFlow's DeviceNameUtils, which parses it from /job:NAME/task:0.
JobName = Annotated[
    str,
    _matching(
        r"[A-Za-z][A-Za-z0-9_]*", 'letters, digits and "_", first a letter, such as "master"'
    ),
]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0, le=1024)]
Workers = Annotated[int, BeforeValidator(_parse_workers)]
Ports = Annotated[
    tuple[Port, ...],
    BeforeValidator(_parse_ports),
    AfterValidator(_check_distinct),
]
Exits = Annotated[
    tuple[Annotated[int | str, BeforeValidator(_check_exit)], ...],
    BeforeValidator(lambda value: _list_to_tuple(value)),
]
GpuId = Annotated[int, Field(ge=0)]
GpuIds = Annotated[Sequence[GpuId], AfterValidator(_check_distinct), WrapValidator(_parse_gpus)]
"""A range if hosts.toml has a count: then a start chooses those that are free."""
Environment = Annotated[dict[str, str], AfterValidator(_check_environment)]
Command = Annotated[
    tuple[str, ...],
    BeforeValidator(_split_words),
    Field(min_length=1),
    AfterValidator(_check_command),
]
Words = Annotated[tuple[str, ...], BeforeValidator(_split_words), AfterValidator(_check_words)]
Text = Annotated[str, _matching(r"[^\0]*", "text without a NUL character")]
Target = Annotated[
    tuple[str, ...],
    BeforeValidator(_split_target),
    Field(min_length=1),
    AfterValidator(_check_target),
]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Timeout = Annotated[float, Field(gt=0, allow_inf_nan=False)]
StringList = Annotated[tuple[str, ...], BeforeValidator(_list_to_tuple)]
Requirements = Annotated[str | tuple[str, ...], BeforeValidator(_check_requirements)]
PythonVersion = Annotated[str, _matching(r"3\.\d{1,2}(\.\d{1,2})?", 'a version such as "3.12"')]
Params = Annotated[dict[str, Any], AfterValidator(_check_params)]
Objective = Annotated[str, AfterValidator(_check_objective)]
Points = Annotated[tuple[dict[str, str], ...], BeforeValidator(_list_to_tuple)]
Setup = Annotated[StringList, AfterValidator(_check_setup)]
Variables = Annotated[StringList, AfterValidator(_check_secrets)]
Outputs = Annotated[StringList, AfterValidator(_check_outputs)]
Modules = Annotated[StringList, AfterValidator(_check_modules)]
Jobs = Annotated[
    tuple[Literal["ps", "worker", "chief", "evaluator"], ...],
    BeforeValidator(_list_to_tuple),
    Field(min_length=1),
]
Role = Literal["flags", "positional", "environment", "torch", "jax", "tf_config"]
Ready = Literal["server", "port", "process", "rendezvous"]
EndsWith = Literal["chief", "all"]
