"""Import TensorFlow once, and run each script that stdin names in a fork. See warm.py."""

import gc
import importlib.util
import json
import os
import runpy
import signal
import sys
from pathlib import Path

import tensorflow as tf

tf.keras.layers  # noqa: B018 - tf.keras is imported when it is first used
gc.freeze()  # otherwise the first collection in each fork copies the pages of all objects


def receive():
    """Return a request, in the fork that runs its script; the server itself never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the watchers need no wait()
    for line in sys.stdin:
        request = json.loads(line)
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            pid = os.fork()
            if not pid:
                return request
            watch(pid, Path(request["folder"]))
    os._exit(0)


def watch(pid, folder):
    """Send the script's pid, wait for its exit, store its exit status, and exit."""
    temporary = folder / "status.new"
    os.write(1, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    temporary.write_text(str(os.waitstatus_to_exitcode(status)))
    temporary.rename(folder / "status")
    os._exit(0)


def set_up(request):
    """Set the environment, the working directory and the standard streams of the script."""
    os.setsid()  # with all processes that it starts
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for number, name in ((0, os.devnull), (1, "output"), (2, "errors")):
        file = os.path.join(request["folder"], name)
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(file, flags), number)
    path = os.environ.get("PYTHONPATH", "")
    if path:
        sys.path[1:1] = filter(None, path.split(os.pathsep))
        run_sitecustomize()


def run_sitecustomize():
    """Run the sitecustomize of PYTHONPATH, as Python does when it starts.

    That of tfdeploy/inside waits for imports. Of the modules that are imported already, it patches
    those that it would have patched after their import.
    """
    sys.modules.pop("sitecustomize", None)
    if importlib.util.find_spec("sitecustomize"):
        importlib.import_module("sitecustomize")
    for hook in [each for each in sys.meta_path if type(each).__name__ == "TensorFlowHook"]:
        for patch, value in hook.wanted.items():
            if patch.awaited in sys.modules:
                getattr(importlib.import_module(patch.module), patch.function)(value)


def execute(words):
    """Run what `python WORDS` runs: a script, -m and a module, or -c and code."""
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        exec(words[1], {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


request = receive()
set_up(request)
execute(request["words"])
