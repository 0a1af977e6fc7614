"""Draw screens of a terminal as one SVG: a picture of the last one, or an animation of all.

The file adapts to a light and a dark theme, needs no font and no other file, and runs no script.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from make_pictures.terminal import Frame, Screen, Span

    Line = tuple[Span, ...]

CELL, LINE, SIZE, EDGE, BAR = 8.4, 18.0, 14, 14.0, 34.0  # pixels
LONGEST_S, SHORTEST_S, LAST_S = 1.6, 0.08, 5.0  # how long a screen of an animation is shown
NAMES = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white", "grey")
# Each has a contrast of at least 4.5 to the background.
LIGHT = ("#24292f", "#cf222e", "#116329", "#7d4e00", "#0550ae", "#8250df", "#1b7c83", "#57606a",
         "#57606a")  # fmt: skip
DARK = ("#b1bac4", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#e6edf3",
        "#8b949e")  # fmt: skip
STYLE = """\
svg{{--front:#1f2328;--back:#ffffff;--edge:#d0d7de;{light}}}
@media (prefers-color-scheme:dark){{svg{{--front:#e6edf3;--back:#0d1117;--edge:#3d444d;{dark}}}}}
text{{font:{size}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;\
fill:var(--front);white-space:pre}}
.b{{font-weight:700}}
.f{{visibility:hidden;animation:{total:.2f}s step-end infinite}}.z{{visibility:visible}}
@media (prefers-reduced-motion:reduce){{.f{{animation:none!important}}}}
"""


def draw(frames: Sequence[Frame], title: str, description: str, columns: int) -> str:
    """Return the SVG of a recording, or of one screen. `description` is for people who can't see
    it."""
    shown = shorten(frames)
    rows = max(_used_rows(screen) for screen, _ in shown)
    width, height = columns * CELL + 2 * EDGE, BAR + rows * LINE + EDGE
    numbers = {line: n for n, line in enumerate(dict.fromkeys(
        line for screen, _ in shown for line in screen if line
    ))}  # fmt: skip
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(title)}</title><desc id="d">{escape(description)}</desc>',
        "<style>", _style(sum(seconds for _, seconds in shown)), *_keyframes(shown), "</style>",
        f'<rect x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8" '
        'fill="var(--back)" stroke="var(--edge)"/>',
        *(f'<circle cx="{20 + 18 * n}" cy="18" r="5.5" fill="var(--edge)"/>' for n in range(3)),
        f'<text x="{width / 2:.0f}" y="23" text-anchor="middle">{escape(title)}</text>',
        "<defs>", *(_line(line, number) for line, number in numbers.items()), "</defs>",
        *_groups([screen[:rows] for screen, _ in shown], numbers),
        "</svg>\n",
    ])  # fmt: skip


def shorten(frames: Sequence[Frame]) -> list[tuple[Screen, float]]:
    """Return the screens that differ, each with the seconds for which it is shown: long waits are
    shortened, and screens of a moment are left out."""
    ends = [frame.at for frame in frames[1:]]
    shown: list[tuple[Screen, float]] = []
    waited = 0.0
    for frame, end in zip(frames, [*ends, frames[-1].at + LAST_S], strict=True):
        waited += end - frame.at
        if shown and shown[-1][0] == frame.screen:
            shown[-1] = (frame.screen, min(shown[-1][1] + waited, LONGEST_S))
            waited = 0.0
        elif waited >= SHORTEST_S:
            shown.append((frame.screen, min(waited, LONGEST_S)))
            waited = 0.0
    return [*shown[:-1], (shown[-1][0], LAST_S)]


def _used_rows(screen: Screen) -> int:
    return max((number for number, line in enumerate(screen, 1) if line), default=1)


def _style(total_s: float) -> str:
    light, dark = (
        "".join(f"--{name}:{colour};" for name, colour in zip(NAMES, colours, strict=True))
        for colours in (LIGHT, DARK)
    )
    return STYLE.format(light=light, dark=dark, size=SIZE, total=total_s)


def _keyframes(shown: Sequence[tuple[Screen, float]]) -> Iterator[str]:
    """Yield when each screen is visible, in percent of the whole; nothing for a single screen."""
    if len(shown) == 1:
        return
    total, begin = sum(seconds for _, seconds in shown), 0.0
    for number, (_, seconds) in enumerate(shown):
        first, last = f"{100 * begin / total:.3f}%", f"{100 * (begin + seconds) / total:.3f}%"
        hidden = "0%{visibility:hidden}" if number else ""
        end = f"{last}{{visibility:hidden}}" if number < len(shown) - 1 else ""
        yield f"@keyframes k{number}{{{hidden}{first}{{visibility:visible}}{end}}}"
        begin += seconds


def _groups(screens: Sequence[Screen], numbers: Mapping[Line, int]) -> Iterator[str]:
    for number, screen in enumerate(screens):
        uses = "".join(
            f'<use href="#l{numbers[line]}" y="{BAR + row * LINE:.0f}"/>'
            for row, line in enumerate(screen)
            if line
        )
        final = " z" if number == len(screens) - 1 else ""
        is_moving = len(screens) > 1
        look = f' class="f{final}" style="animation-name:k{number}"' if is_moving else ""
        yield f"<g{look}>{uses}</g>"


def _line(line: Line, number: int) -> str:
    parts, column = [], 0
    for span in line:
        x, width = EDGE + column * CELL, len(span.text) * CELL
        if span.back != "default":
            fill = _colour(span.back)
            parts.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="{LINE}" fill="{fill}"/>')
        if span.text.strip():
            look = ' class="b"' if span.is_bold else ""
            front = "" if span.front == "default" else f' style="fill:{_colour(span.front)}"'
            parts.append(
                f'<text x="{x:.1f}" y="13.5" textLength="{width:.1f}"{look}{front}>'
                f"{escape(span.text)}</text>"
            )
        column += len(span.text)
    return f'<g id="l{number}">{"".join(parts)}</g>'


def _colour(name: str) -> str:
    """Return a colour of pyte's as CSS. Bright ones look as the others, bright black as grey."""
    plain = "grey" if name == "brightblack" else name.removeprefix("bright")
    return f"var(--{plain})" if plain in (*NAMES, "front", "back") else f"#{plain}"
