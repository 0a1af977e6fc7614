"""Post what is on standard input to the URL in the variable URL, as a program of its own.

notify.py runs it by its path, so that it has the time limit of a command.
"""

from __future__ import annotations

import os
import sys

URL = "TFDEPLOY_NOTIFY_URL"  # not an argument: every user of the host sees those
TIMEOUT_S = 25.0
MAX_ANSWER = 200  # bytes of an error's body, such as Slack's "no_service"


def main() -> int:
    """Print the answer, without the URL; return 0 if it was accepted."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    headers = {"Content-Type": "application/json", "User-Agent": "tfdeploy"}
    try:
        request = Request(os.environ[URL], sys.stdin.buffer.read(), headers)
        with urlopen(request, timeout=TIMEOUT_S) as response:
            print("HTTP {}".format(response.status))
            return 0
    except HTTPError as error:
        body = error.read(MAX_ANSWER).decode(errors="replace").strip()
        print("HTTP {} {} {}".format(error.code, error.reason, body).strip())
    except OSError as error:  # among them URLError
        cause = getattr(error, "reason", error)
        print(getattr(cause, "strerror", None) or cause)
    except (ValueError, HTTPException) as error:  # their messages may have the URL
        print("not a valid URL, or no valid answer ({})".format(type(error).__name__))
    return 1


if __name__ == "__main__":
    sys.exit(main())
