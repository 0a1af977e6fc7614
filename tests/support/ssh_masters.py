"""Masters of OpenSSH that tests have opened, and their end."""

from __future__ import annotations

from tfdeploy.transport.openssh import master
from tfdeploy.user_folders import socket_folder


def close_masters() -> None:
    """End all masters of this user."""
    folder = socket_folder()
    for path in folder.glob("*.ssh") if folder else ():
        master.end("any", path)
