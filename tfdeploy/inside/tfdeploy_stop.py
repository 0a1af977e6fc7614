"""SIGTERM ends a compat.v1 session as a hook's request_stop() does, so that its hooks can save.

Only MonitoredSession and its kin can be asked. A TF2 loop has nothing to ask: it saves by
tf.distribute.experimental.PreemptionCheckpointHandler or by a SIGTERM handler of the script's own.
"""

import ctypes
import functools
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, Callable, MutableSet
from weakref import WeakSet

from tensorflow.python.training.monitored_session import _MonitoredSession

SAID = b"tfdeploy: SIGTERM: the session stops after this step; a second SIGTERM ends it at once\n"


def save_on_stop(_: str) -> None:
    """Patch TensorFlow's monitored sessions, or raise and patch nothing."""
    stop = Stop()
    patched = {
        "__init__": _then(_MonitoredSession.__init__, stop.began),
        "should_stop": _or_asked(_MonitoredSession.should_stop, stop),
        "run": _unless_asked(_MonitoredSession.run, stop),
        "run_step_fn": _unless_asked(_MonitoredSession.run_step_fn, stop),
        "_close_internal": _finally(_MonitoredSession._close_internal, stop.ended),
    }
    for name, method in patched.items():
        setattr(_MonitoredSession, name, method)
    os.register_at_fork(
        before=stop.forks, after_in_parent=stop.forked, after_in_child=stop.is_a_child
    )


class Stop:
    """Was this process asked to stop? SIGTERM is ours only while a session lives, for without one
    nobody would heed it: it ends the process as ever."""

    def __init__(self) -> None:
        self.asked = False
        self.sessions: MutableSet[Any] = WeakSet()
        self.process = os.getpid()
        self._of_thread = threading.local()

    def forks(self) -> None:
        """A signal that meets a child before Python is ready in it would be forgotten, and the
        handler with it: so it has to wait. (PyOS_AfterFork_Child clears what has come.)"""
        self._of_thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def forked(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._of_thread.mask)

    def is_a_child(self) -> None:
        """One that reads data, say, doesn't train: it ends as ever."""
        if signal.getsignal(signal.SIGTERM) == self.ask:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.forked()

    def began(self, session: Any) -> None:
        """Take SIGTERM, unless the script has done so, or say in one line why we can't."""
        self.sessions.add(session)
        if self.asked or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        try:
            signal.signal(signal.SIGTERM, self.ask)
            _only_once(signal.SIGTERM)
        except Exception as error:  # such as ValueError: this is not the main thread
            why = " ".join("{}: {}".format(type(error).__name__, error).split())
            print("tfdeploy: a stop saves no last checkpoint: " + why, file=sys.stderr)

    def ended(self, session: Any) -> None:
        self.sessions.discard(session)
        if not self.sessions and signal.getsignal(signal.SIGTERM) == self.ask:
            with suppress(ValueError):  # closed in another thread: then ask() ends the process
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def ask(self, number: int, frame: Any) -> None:
        """The handler. Python runs it between two steps, never within one."""
        signal.signal(number, signal.SIG_DFL)
        # A child that was forked past Python inherits the handler, too.
        if not self.sessions or os.getpid() != self.process:
            os.kill(os.getpid(), number)
        self.asked = True
        os.write(2, SAID)


def _only_once(number: int) -> None:
    """Have the kernel itself put the default action back as the first signal comes.

    Python's handler waits for the step to return, and a second signal shall end even a step that
    never does. Source: signal(2) on the System V semantics, SA_RESETHAND in sigaction(2).
    """
    install = ctypes.CDLL(None).sysv_signal
    install.argtypes, install.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    install(number, install(number, None))


def _or_asked(should_stop: Callable[..., bool], stop: Stop) -> Callable[..., bool]:
    @functools.wraps(should_stop)
    def or_asked(session: Any) -> bool:
        return stop.asked or should_stop(session)

    return or_asked


def _unless_asked(run: Callable[..., Any], stop: Stop) -> Callable[..., Any]:
    """TensorFlow's own refusal to run on is a RuntimeError, with which a session closes unsaved.

    StopIteration is what leaves `with session:` in peace, whether the loop asks should_stop()
    or not, and between any two of its runs. Source: MonitoredSession.run_step_fn and __exit__.
    """

    @functools.wraps(run)
    def unless_asked(session: Any, *args: Any, **kwargs: Any) -> Any:
        if stop.asked:
            raise StopIteration("SIGTERM has asked the session to stop")
        return run(session, *args, **kwargs)

    return unless_asked


def _then(method: Callable[..., Any], also: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def then(session: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(session, *args, **kwargs)
        also(session)
        return result

    return then


def _finally(method: Callable[..., Any], also: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def whatever_happens(session: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(session, *args, **kwargs)
        finally:
            also(session)

    return whatever_happens
