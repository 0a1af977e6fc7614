"""On SIGTERM, end a compat.v1 session as a hook's request_stop() does, so that its hooks save.

This works only for MonitoredSession and its subclasses. A TF2 loop has no such request: it saves
with tf.distribute.experimental.PreemptionCheckpointHandler or with its own SIGTERM handler.
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

NOTICE = b"tfdeploy: SIGTERM: the session stops after this step; a second SIGTERM ends it at once\n"


def save_on_stop(_: str) -> None:
    """Patch TensorFlow's monitored sessions, or raise and patch nothing."""
    request = StopRequest()
    patched = {
        "__init__": _call_after(_MonitoredSession.__init__, request.session_started),
        "should_stop": _true_if_requested(_MonitoredSession.should_stop, request),
        "run": _stop_if_requested(_MonitoredSession.run, request),
        "run_step_fn": _stop_if_requested(_MonitoredSession.run_step_fn, request),
        "_close_internal": _call_finally(_MonitoredSession._close_internal, request.session_closed),
    }
    for name, method in patched.items():
        setattr(_MonitoredSession, name, method)
    os.register_at_fork(
        before=request.before_fork,
        after_in_parent=request.after_fork,
        after_in_child=request.after_fork_in_child,
    )


class StopRequest:
    """Whether this process was asked to stop.

    SIGTERM is caught only while a session is open. Without a session it ends the process, as it
    does without tfdeploy.
    """

    def __init__(self) -> None:
        self.is_set = False
        self.sessions: MutableSet[Any] = WeakSet()
        self.process = os.getpid()
        self._of_thread = threading.local()

    def before_fork(self) -> None:
        """Block SIGTERM until the child is ready: PyOS_AfterFork_Child clears what came before."""
        self._of_thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_fork(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._of_thread.mask)

    def after_fork_in_child(self) -> None:
        """Let SIGTERM end a child, which reads data, for example, and does not train."""
        if signal.getsignal(signal.SIGTERM) == self.handle_signal:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.after_fork()

    def session_started(self, session: Any) -> None:
        """Catch SIGTERM, unless the script does; print one line if that is not possible."""
        self.sessions.add(session)
        if self.is_set or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        try:
            signal.signal(signal.SIGTERM, self.handle_signal)
            _reset_after_first(signal.SIGTERM)
        except Exception as error:  # such as ValueError: this is not the main thread
            why = " ".join("{}: {}".format(type(error).__name__, error).split())
            print("tfdeploy: a stop saves no last checkpoint: " + why, file=sys.stderr)

    def session_closed(self, session: Any) -> None:
        self.sessions.discard(session)
        if not self.sessions and signal.getsignal(signal.SIGTERM) == self.handle_signal:
            # ValueError: closed in another thread. Then handle_signal() ends the process.
            with suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def handle_signal(self, number: int, frame: Any) -> None:
        """Handle SIGTERM. Python calls this between two steps, never within one."""
        signal.signal(number, signal.SIG_DFL)
        # A child that was forked by C code inherits the handler too.
        if not self.sessions or os.getpid() != self.process:
            os.kill(os.getpid(), number)
        self.is_set = True
        os.write(2, NOTICE)


def _reset_after_first(number: int) -> None:
    """Let the kernel restore the default action at the first signal.

    Python's handler waits until the step returns; a second signal must end even a step that never
    returns. Source: signal(2) on the System V semantics, SA_RESETHAND in sigaction(2).
    """
    install = ctypes.CDLL(None).sysv_signal
    install.argtypes, install.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    install(number, install(number, None))


def _true_if_requested(
    should_stop: Callable[..., bool], request: StopRequest
) -> Callable[..., bool]:
    @functools.wraps(should_stop)
    def should_stop_or_requested(session: Any) -> bool:
        return request.is_set or should_stop(session)

    return should_stop_or_requested


def _stop_if_requested(run: Callable[..., Any], request: StopRequest) -> Callable[..., Any]:
    """Raise StopIteration instead of a run after the request.

    `with session:` accepts it, whether or not the loop calls should_stop(), and between any two
    runs. TensorFlow's own refusal to run is a RuntimeError, after which a session does not save.
    Source: MonitoredSession.run_step_fn and __exit__.
    """

    @functools.wraps(run)
    def run_unless_requested(session: Any, *args: Any, **kwargs: Any) -> Any:
        if request.is_set:
            raise StopIteration("SIGTERM has asked the session to stop")
        return run(session, *args, **kwargs)

    return run_unless_requested


def _call_after(method: Callable[..., Any], also: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call_both(session: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(session, *args, **kwargs)
        also(session)
        return result

    return call_both


def _call_finally(method: Callable[..., Any], also: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call_both(session: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(session, *args, **kwargs)
        finally:
            also(session)

    return call_both
