"""The kinds of value that hosts.toml holds, each with the sentence that refuses a wrong one."""

from __future__ import annotations

import ipaddress
import re
import shlex
import signal
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
)

PER_GPU = -1
"""The count of workers that stands for one on each of the host's GPUs (`workers = "per-gpu"`)."""
AUTO: tuple[int, ...] = ()
"""The ports that stand for free ones, found on the host when a run starts (`ports = "auto"`)."""
ANY_SIGNAL = "signals"
OURS = ("TF_CONFIG", "CUDA_VISIBLE_DEVICES", "TFDEPLOY_RUN", "TFDEPLOY_TASK")


def _address(value: str) -> str:
    """A host name, an IPv4 or an IPv6 address; nothing that carries a port, a user or a scheme."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        label = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})"
        numbers = re.fullmatch(r"[0-9.]+", value)
        if numbers or not re.fullmatch(rf"{label}(\.{label})*\.?", value):
            raise ValueError(
                "expected a host name or an IP address, without user, port or scheme"
            ) from None
        return value
    if address.is_unspecified:
        raise ValueError("expected an address that others can dial; this one only listens")
    return str(address)  # one spelling, so that two of the same are seen to be the same


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value) or value == "agent":
        raise ValueError('expected letters, digits, ".", "_" and "-", and not the word "agent"')
    return value


def _word(value: str) -> str:
    if value.startswith("-") or not value.isprintable() or not value.strip():
        raise ValueError('expected a word that doesn\'t begin with "-"')
    return value


def _job_name(value: str) -> str:
    """Source: TensorFlow's DeviceNameUtils, which reads it out of /job:NAME/task:0."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", value):
        raise ValueError('expected letters, digits and "_", as "master"')
    return value


def _directory(value: str) -> str:
    """A folder of tfdeploy's own: absolute, or below the home directory; `{host}` in it is the
    host's name."""
    inside = value.removeprefix("~/").strip("/")
    unknown = re.search(r"\{[^}]*\}?|\}", value.replace("{host}", ""))
    if unknown:
        raise ValueError(f"{unknown[0]} is unknown here; {{host}}, the host's name, is not")
    if not value.startswith(("~/", "/")) or inside in ("", ".") or ".." in inside.split("/"):
        raise ValueError('expected a folder as "~/.tfdeploy" or "/scratch/me/tfdeploy"')
    return value


def _checkpoint_dir(value: str) -> str:
    """Told to the script as it is, so it must mean the same to the script and to us."""
    if not value or value.startswith("~") or ".." in value.split("/") or "\0" in value:
        raise ValueError('expected a path without "~" and "..": relative to the task, or absolute')
    return value


def _place(value: str) -> str:
    """Where in its directory a task finds something, spelled in the one way that there is."""
    names = value.split("/")
    if not value.isprintable() or {"", ".", ".."} & {*names} or value[0] == "~" or "\\" in value:
        raise ValueError('expected a path within the task\'s directory, as "data/mnist"')
    return value


def _ports(value: Any) -> Any:
    """`"2222-2299"`, `2222` (that one alone) or a list become ports in the order of their use."""
    if value == "auto":
        return AUTO
    if value == []:
        raise ValueError('expected at least one port, or "auto"')
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, str):
        found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", value)
        if not found or int(found[1]) > int(found[2]):
            raise ValueError('expected a range as "2222-2299", a list as [2222, 2223], or "auto"')
        if not 1 <= int(found[1]) <= int(found[2]) <= 65535:
            raise ValueError("expected ports above 0 and below 65536")
        return tuple(range(int(found[1]), int(found[2]) + 1))
    return tuple(value) if isinstance(value, list) else value


def _distinct(value: tuple[int, ...]) -> tuple[int, ...]:
    seen: set[int] = set()
    for item in value:
        if item in seen:
            raise ValueError(f"expected each number once, found {item} twice")
        seen.add(item)
    return value


def _command(value: Any) -> Any:
    """A string is split as a shell splits words; nothing in it is ever given to a shell."""
    return tuple(shlex.split(value)) if isinstance(value, str) else _tuple(value)


def _runnable(value: tuple[str, ...]) -> tuple[str, ...]:
    if value and not value[0]:
        raise ValueError("expected a program as the first word")
    if any("\0" in word for word in value):
        raise ValueError("expected words without a NUL, which no process can be given")
    return value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _exit(value: Any) -> Any:
    """An exit code, the name of a signal, or "signals" for all of those."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= 255:
            raise ValueError("expected an exit code from 1 to 255")
    elif not isinstance(value, str) or value not in (ANY_SIGNAL, *signal.Signals.__members__):
        raise ValueError('expected an exit code, a signal as "SIGKILL", or "signals" for all')
    return value


def _gpus(value: Any) -> Any:
    """A count n stands for the ids 0 to n-1."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= 64:
            raise ValueError("expected a count from 0 to 64, or a list of ids as [0, 1]")
        return tuple(range(value))
    return _tuple(value)


def _workers(value: Any) -> Any:
    if value == "per-gpu":
        return PER_GPU
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 1024:
        raise ValueError('expected a count from 0 to 1024, or "per-gpu"')
    return value


def _environment(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if name in OURS:
            raise ValueError(f"{name} is set by tfdeploy itself, from the plan")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} can't be the name of an environment variable")
        if "\0" in value[name]:
            raise ValueError(f"the value of {name} holds a NUL, which no variable can")
    return value


Address = Annotated[str, AfterValidator(_address)]
CheckpointDir = Annotated[str, AfterValidator(_checkpoint_dir)]
Directory = Annotated[str, AfterValidator(_directory)]
Place = Annotated[str, AfterValidator(_place)]
Word = Annotated[str, AfterValidator(_word)]
Name = Annotated[str, AfterValidator(_name)]
JobName = Annotated[str, AfterValidator(_job_name)]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0, le=1024)]
Workers = Annotated[
    int,
    BeforeValidator(_workers),
    PlainSerializer(lambda count: "per-gpu" if count == PER_GPU else count),
]
Ports = Annotated[
    tuple[Port, ...],
    BeforeValidator(_ports),
    AfterValidator(_distinct),
    PlainSerializer(lambda ports: list(ports) if ports else "auto"),
]
Exits = Annotated[
    tuple[Annotated[int | str, BeforeValidator(_exit)], ...],
    BeforeValidator(lambda value: _tuple(value)),
]
GpuId = Annotated[int, Field(ge=0)]
GpuIds = Annotated[tuple[GpuId, ...], BeforeValidator(_gpus), AfterValidator(_distinct)]
Environment = Annotated[dict[str, str], AfterValidator(_environment)]
Command = Annotated[
    tuple[str, ...], BeforeValidator(_command), Field(min_length=1), AfterValidator(_runnable)
]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Timeout = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Words = Annotated[tuple[str, ...], BeforeValidator(_tuple)]
Jobs = Annotated[
    tuple[Literal["ps", "worker", "chief", "evaluator"], ...],
    BeforeValidator(_tuple),
    Field(min_length=1),
]
Role = Literal["flags", "dashed", "positional", "environment", "tf_config"]
Ready = Literal["server", "port", "process"]
