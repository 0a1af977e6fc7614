"""Refuse a launch that Linux can't execute, because an argument or a variable is too long. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.shared.records import Launch

# Of one argument, or of one variable with its name, without the byte 0 at its end. The limit is 32
# pages of at least 4 KiB: execve(2), MAX_ARG_STRLEN.
MAX_BYTES = 32 * 4096 - 1
# Only the first task of each job is checked before a start: the others have other indexes.
SPARE_BYTES = 32
NO_PROXY = "no_grpc_proxy"  # the longest name of the variables that hold no_proxy


def refuse_too_long(launch: Launch, tasks: int) -> None:
    """Raise PlanError if an argument or a variable of a launch is longer than Linux accepts;
    `tasks` is the number of tasks in the plan."""
    for name, text in _texts(launch):
        if 4 * len(text) <= MAX_BYTES:  # UTF-8 needs at most 4 bytes for a character
            continue
        size = len(text.encode())
        if size > MAX_BYTES - SPARE_BYTES:
            lists_tasks = any(address in text for address in launch.no_proxy)
            raise PlanError(
                f"{name} of {launch.name or launch.task} has {size:,} bytes"
                f"{f' with the addresses of {tasks:,} tasks' if lists_tasks else ''}; Linux passes "
                f"at most {MAX_BYTES:,} bytes to a program in one argument or variable",
                "start fewer tasks, or set shorter addresses in hosts.toml"
                if lists_tasks
                else "shorten it, or pass a file instead",
            )


def _texts(launch: Launch) -> Iterator[tuple[str, str]]:
    """Yield each argument and variable with its name."""
    for word in launch.argv:
        flag, separator, _ = word.partition("=")
        yield (flag if separator else f"the argument {word[:20]}…"), word
    for name, value in launch.env.items():
        yield name, f"{name}={value}"
    yield "no_proxy", f"{NO_PROXY}={','.join(launch.no_proxy)}"
