"""Post what is on standard input to the URL in the variable URL, as a program of its own.

notify.py runs it by its path, so that it has the time limit of a command.
"""

from __future__ import annotations

import os
import sys

URL = "TFDEPLOY_NOTIFY_URL"  # not an argument: every user of the host sees those
TIMEOUT_S = 25.0


def main() -> int:
    """Print the status of the answer; return 0 if the summary was accepted.

    Nothing else of an answer is printed: what a server says may have the URL's path, which is a
    secret, in it. A redirect is not followed: it could lead anywhere, and the summary would not
    arrive there, because urllib asks again with GET.
    """
    from http.client import HTTPException, responses
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            """Return None: the redirect is raised as an HTTPError."""

    headers = {"Content-Type": "application/json", "User-Agent": "tfdeploy"}
    try:
        request = Request(os.environ[URL], sys.stdin.buffer.read(), headers)
        with build_opener(NoRedirect).open(request, timeout=TIMEOUT_S) as response:
            print("HTTP {}".format(response.status))
            return 0
    except HTTPError as error:
        print("HTTP {} {}".format(error.code, responses.get(error.code, "")).strip())
        if 300 <= error.code < 400:
            print("(a redirect, which is not followed: write the URL that it leads to)")
    except OSError as error:  # among them URLError
        cause = getattr(error, "reason", error)
        print(getattr(cause, "strerror", None) or cause)
    except (ValueError, HTTPException) as error:  # their messages may have the URL
        print("not a valid URL, or no valid answer ({})".format(type(error).__name__))
    return 1


if __name__ == "__main__":
    sys.exit(main())
