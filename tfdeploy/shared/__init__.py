"""What the controller and the hosts both know: records, messages, and the formats of files.

It is part of the agent, so it uses only the standard library of Python 3.8 and imports nothing else
of tfdeploy.
"""

TYPE_CHECKING = False  # instead of typing's, because loading typing takes 3 ms
