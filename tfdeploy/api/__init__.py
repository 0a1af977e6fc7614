"""The commands for programs and notebooks: they return objects, and raise TfdeployError.

Nothing in this package prints, asks or exits, and nothing needs a terminal or the main thread. It
is built on commands/, as the command line is. docs/python.md shows how to use it.

`cancel` ends a call from another thread: the call raises Cancelled soon after the event is set, as
it raises KeyboardInterrupt in the main thread. A push leaves no release half done, and the next
one continues it; a start is undone; a run that is being resumed is as it was, or stopped; a run
that is only followed continues.
"""
