"""Masters of OpenSSH that tests have opened, and their end."""

from __future__ import annotations

from tfdeploy.folders.user_folders import socket_folder
from tfdeploy.transport.openssh import master


def close_masters() -> None:
    """End all masters of this user."""
    folder = socket_folder()
    for path in folder.glob("*.ssh") if folder else ():
        master.end("any", path)
