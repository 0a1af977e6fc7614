"""Free the tests from what their starter ignores, limits and exports.

A script that runs them in the background ignores SIGINT, `nohup` ignores SIGHUP, and each process
that a test starts would inherit that.
"""

from __future__ import annotations

import os
import re
import resource
import signal

# What the suite, downloads and Docker need. Everything else changes what a test sees.
KEPT = re.compile(
    r"HOME|PATH|TMPDIR|CI|LD_LIBRARY_PATH|(PYTEST|TFDEPLOY_FUZZ|TFDEPLOY_FAULTS|DOCKER)(_.*|)"
    r"|(PIP|UV|SSL_CERT|REQUESTS|CURL)_.*|(?i:https?_proxy|all_proxy)"
)
SET = {"LANG": "C.UTF-8", "TERM": "xterm", **dict.fromkeys(("no_proxy", "NO_PROXY"),
       "localhost,127.0.0.1,::1")}  # fmt: skip
PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)  # and what it starts does not
# Soft limits; those of all others are raised as far as possible.
LIMITS = {resource.RLIMIT_NOFILE: 4096, resource.RLIMIT_CORE: 0, resource.RLIMIT_STACK: 8 << 20}


def forget() -> None:
    """Give this process, and so what it starts, the signals, umask, limits and variables that every
    starter of the tests gives them."""
    _reset_signals()
    os.umask(0o022)
    _reset_limits()
    _reset_variables()


def _reset_signals() -> None:
    """Unblock all signals, and ignore those that the starter ignores in this process only: a
    program that it starts gets the default instead of a handler."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN and number not in PYTHON_IGNORES:
            signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _reset_limits() -> None:
    for name in filter(lambda name: name.startswith("RLIMIT_"), dir(resource)):
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        wanted = LIMITS.get(number, hard)
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (soft, hard))


def _reset_variables() -> None:
    for name in [name for name in os.environ if not KEPT.fullmatch(name)]:
        del os.environ[name]
    os.environ.update(SET)
