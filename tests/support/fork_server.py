"""Import modules once, and run each program that is requested in a fork. See forks.py.

    python fork_server.py DESCRIPTOR IMPORTS

DESCRIPTOR is the socket from which it receives requests; it exits when the other end is closed.
IMPORTS is the Python code that imports the modules.
"""

import fcntl
import gc
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import sys
import termios
from contextlib import suppress

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)
LENGTH = 8  # bytes of a request's length
OWN_PATH = os.environ.get("PYTHONPATH", "")  # its sitecustomize has run


def serve(requests):
    """Return a request, in the fork that runs it; the server itself never returns."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # the default writes nothing into the pipe
    running = {}  # the descriptor of the status, by pid
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 1024)
            report_exits(running)
        if requests in ready:
            request = receive(requests)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                return request
            running[pid] = request["status"]
            for descriptor in request["streams"]:
                os.close(descriptor)


def receive(requests):
    """Return the next request, with the descriptors of its standard streams and of its status."""
    head, descriptors, _, _ = socket.recv_fds(requests, LENGTH, 4)
    if not head:
        os._exit(0)
    request = json.loads(requests.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
    *request["streams"], request["status"] = descriptors
    return request


def report_exits(running):
    """Write the exit status of each fork that has exited, in subprocess's format."""
    while running:
        pid, code = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        status = running.pop(pid)
        with suppress(BrokenPipeError):  # nothing waits for it
            os.write(status, b"exit %d\n" % os.waitstatus_to_exitcode(code))
        os.close(status)


def set_up(request):
    """Make this fork the process that was requested, and report its pid."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for number, descriptor in enumerate(request["streams"]):
        os.dup2(descriptor, number)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if request["own_session"]:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.write(request["status"], b"pid %d\n" % os.getpid())
    os.closerange(3, 1024)
    path = os.environ.get("PYTHONPATH", "")
    if path != OWN_PATH:
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
    for hook in [each for each in sys.meta_path if type(each).__name__ == "FrameworkHook"]:
        for patch, value in hook.wanted.items():
            if "tensorflow" in sys.modules:
                # sys.modules may have the sitecustomize that it hides, such as Debian's.
                apply = type(hook).find_spec.__globals__["_apply"]
                apply(patch, sys.modules["tensorflow"], value)


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


sys.path[0] = os.devnull  # the modules are those of PYTHONPATH or installed
exec(sys.argv[2], {})
gc.freeze()  # otherwise the first collection in each fork copies the pages of all objects
request = serve(socket.socket(fileno=int(sys.argv[1])))
set_up(request)
execute(request["words"])
