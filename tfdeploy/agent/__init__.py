"""What runs on the hosts: standard library only, Python 3.8 and later, nothing else of tfdeploy.

Each call is a Python of its own, so a module is imported where it is sure to be needed, and one
that costs more than a millisecond in the function that alone needs it.
"""

TYPE_CHECKING = False  # as typing's own, which would cost each call 3 ms
