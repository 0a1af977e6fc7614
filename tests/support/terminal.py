"""A command line on a terminal, with answers that are typed at once."""

from __future__ import annotations

import os
import pty
from typing import TYPE_CHECKING

from support import command_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def on_terminal(
    words: Sequence[str], answers: str, folder: Path, env: Mapping[str, str]
) -> tuple[int, str]:
    """Run `tfdeploy WORDS` in a folder on a terminal, type the answers, and return its exit code
    and its output."""
    controller, terminal = pty.openpty()
    process = command_line.start(
        *words, cwd=folder, env=env, streams=(terminal,) * 3, own_session=True
    )
    os.close(terminal)
    os.write(controller, answers.encode())
    output = b""
    try:
        while chunk := os.read(controller, 1 << 16):
            output += chunk
    except OSError:  # the terminal is closed
        pass
    os.close(controller)
    return process.wait(), output.decode()


def fork_on_terminal(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[int, int]:
    """Run a command as a job on a terminal of its own; return its pid, and the terminal's other
    end."""
    pid, controller = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.execvpe(argv[0], [*argv], dict(env))
        finally:  # otherwise this copy of pytest would go on with the tests
            os._exit(127)
    return pid, controller


def answer_prompts(
    argv: Sequence[str], answers: Mapping[str, str], folder: Path, env: Mapping[str, str]
) -> tuple[int, str, list[str]]:
    """Run a command as a job on a terminal of its own, which is what ssh asks on. Type an answer
    after each prompt that has its key in it. Return its exit code, its output, and the keys of the
    prompts in their order."""
    pid, controller = fork_on_terminal(argv, folder, env)
    output, unanswered, prompts = "", "", []
    try:
        while chunk := os.read(controller, 1 << 16).decode(errors="replace"):
            output, unanswered = output + chunk, unanswered + chunk
            for key in [key for key in answers if key in unanswered]:
                prompts.append(key)
                unanswered = ""
                os.write(controller, f"{answers[key]}\n".encode())
    except OSError:  # the terminal is closed
        pass
    os.close(controller)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output, prompts
