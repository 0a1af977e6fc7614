"""Count the functions of tfdeploy that one `tfdeploy start` of a plain program enters: on the
controller before the first byte is sent to a host, on the host before the task's process runs.

    .venv/bin/python tests/bench/walk.py          # the two numbers
    .venv/bin/python tests/bench/walk.py --list   # with the functions, by file

The project has one host, this machine, and a script without TensorFlow. Comprehensions, lambdas and
the bodies of modules and classes do not count. Below are the two programs that are measured: this
file runs itself instead of `tfdeploy`, and as the host's Python.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

HOSTS_TOML = """\
project = "walk"
keep_connections_s = 0

[training]
command = ["{python}", "train.py"]
ready = "process"

[hosts.here]
transport = "local"
directory = "{folder}/host"
python = "{folder}/host-python"
ports = [2222, 2223]
workers = 1
"""
# What runs as the first byte is sent, and as the task's process begins.
FIRST_BYTE, PROCESS = ("process_stream.py", "send"), ("subprocess.py", "_execute_child")


def trace(root: str, result: str, last: tuple[str, str], caller: str = "") -> None:
    """Write the functions below `root` that this process enters until the function `last`, called
    by a function of the name `caller`, to the file `result`."""
    entered: dict[tuple[str, str, int], None] = {}

    def called_by(frame: object, name: str) -> bool:
        while frame := frame.f_back:  # type: ignore[attr-defined]
            if frame.f_code.co_name == name:
                return True
        return not name

    def on_event(frame, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or os.path.exists(result):
            return
        if code.co_filename.endswith(last[0]) and code.co_name == last[1]:
            if called_by(frame, caller):
                lines = ("\t".join((file, name)) for file, name, _ in entered)
                Path(result).write_text("\n".join(lines))
        elif code.co_filename.startswith(root) and code.co_flags & 2 and code.co_name[0] != "<":
            file = os.path.relpath(code.co_filename, root)
            entered.setdefault((file, code.co_name, code.co_firstlineno))

    threading.setprofile(on_event)
    sys.setprofile(on_event)


def as_controller(result: str) -> None:
    """Run tfdeploy in this process."""
    import tfdeploy

    trace(str(Path(tfdeploy.__file__).parent), result, FIRST_BYTE)
    runpy.run_module("tfdeploy", run_name="__main__", alter_sys=True)


def as_host_python(result: str) -> None:
    """Run what a host's Python is to run: its flags, the agent's folder, and its words."""
    words = [each for each in sys.argv[1:] if each not in ("-S", "-E", "-I")]
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
        return
    trace(words[0], result, PROCESS, "spawn")
    sys.argv = words
    sys.path.insert(0, words[0])
    runpy.run_path(words[0], run_name="__main__")


def measure(folder: Path) -> dict[str, list[str]]:
    """Start the program, and return the functions that were entered on both sides."""
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text("import time; time.sleep(60)\n")
    hosts = HOSTS_TOML.format(python=sys.executable, folder=folder)
    (project / "hosts.toml").write_text(hosts)
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import walk; walk."
    python = folder / "host-python"
    python.write_text(f"#!{sys.executable}\n{code}as_host_python({str(folder / 'agent')!r})\n")
    python.chmod(0o755)
    own = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}

    def run(*words: str) -> None:
        subprocess.run(words, cwd=project, env={**own, "HOME": str(folder)}, check=True)

    tfdeploy = (sys.executable, "-m", "tfdeploy")
    run(*tfdeploy, "trust")
    run(*tfdeploy, "push")
    run(sys.executable, "-c", f"{code}as_controller({str(folder / 'controller')!r})", "start")
    run(*tfdeploy, "stop")
    return {side: (folder / side).read_text().splitlines() for side in ("controller", "agent")}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sides = measure(Path(folder))
    for side, entered in sides.items():
        files = Counter(line.partition("\t")[0] for line in entered)
        print(f"{side}: {len(entered)} functions in {len(files)} files")
        if "--list" in sys.argv:
            for file in files:
                own = (line.partition("\t")[2] for line in entered if line.startswith(f"{file}\t"))
                print(f"  {file}: {', '.join(own)}")


if __name__ == "__main__":
    main()
