"""The code that runs on hosts: standard library only, Python 3.8 or later, no other tfdeploy code.

Each request may start a new Python. So import a module at the top only if it is always needed; if
it takes more than a millisecond to load, import it in the function that needs it.
"""

TYPE_CHECKING = False  # instead of typing's, because loading typing takes 3 ms
