"""The code that runs on hosts: standard library only, Python 3.8 or later, no other tfdeploy code.

A command may start a new Python on each host. So import a module at the top unless few requests
need it and it takes ten milliseconds to load.
"""
