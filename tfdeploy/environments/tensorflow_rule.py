"""The rule for the requirement `tensorflow`: with CUDA's libraries where GPUs are, else without.

On a host with `gpus`, `tensorflow` becomes `tensorflow[and-cuda]`; on any other, `tensorflow-cpu`.
The version stays. A requirement that says more than a version (extras, a URL, hashes) stays as it
is. Pure.
"""

from __future__ import annotations

import re

WITH_CUDA, WITHOUT_CUDA = "tensorflow[and-cuda]", "tensorflow-cpu"
PLAIN = re.compile(r"\Atensorflow(?=\s*([<>=!~;(]|$))", re.IGNORECASE)


def apply(requirement: str, *, has_gpus: bool) -> str:
    """Return a line of requirements as a host installs it."""
    if "--hash" in requirement:
        return requirement
    return PLAIN.sub(WITH_CUDA if has_gpus else WITHOUT_CUDA, requirement)


def apply_to_constraint(constraint: str, *, has_gpus: bool) -> str:
    """Return a constraint, which has no extras."""
    return constraint if has_gpus else apply(constraint, has_gpus=False)
