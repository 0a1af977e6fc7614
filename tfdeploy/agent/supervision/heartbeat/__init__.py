"""The heartbeat of a run: every supervisor regularly sends its task's state to the chief's.

The chief's supervisor runs the server; its answers say how the run is going. The controller takes
no part in it, and no other process does.
"""
