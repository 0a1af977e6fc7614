"""The commands for programs and notebooks: they return objects, and raise TfdeployError.

Nothing in this package prints, asks or exits, and nothing needs a terminal or the main thread. It
is built on commands/, as the command line is. docs/python.md shows how to use it.

`cancel` ends a call from another thread: the call raises Cancelled soon after the event is set, as
it raises KeyboardInterrupt in the main thread. A start is then undone; a run that has started
continues.
"""
