"""The x axes of `compare`. The command line imports them at each start, so this is all."""

from enum import StrEnum


class Axis(StrEnum):
    STEP = "step"
    TIME = "time"
    EXAMPLES = "examples"
