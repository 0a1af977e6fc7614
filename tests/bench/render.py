"""Puts the figures of results/*.json into docs/performance.md, between the marks there."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import results
from bench.results import ALONE, STEPS, Results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "performance.md"
FIGURES = {"wall": "wall_s", "cpu": "cpu_s", "memory": "peak_mb", "moved": "moved_mb"}
SPREAD = ("wall", "cpu")  # shown with least and most, and the ratio


def main() -> int:
    text = PAGE.read_text()
    for mark, made in _blocks().items():
        text, found = re.subn(
            rf"(<!-- {mark} -->\n).*?(<!-- end -->)",
            lambda match, made=made: match[1] + made + match[2],
            text,
            flags=re.S,
        )
        if not found:
            print(f"{PAGE} has no mark <!-- {mark} -->", file=sys.stderr)
            return 1
    PAGE.write_text(text)
    return 0


def _blocks() -> dict[str, str]:
    peers, scale, relay = (
        HERE / "results" / f"{name}.json" for name in ("peers", "scale", "relay")
    )
    made = {}
    if peers.exists():
        found = results.load(peers)
        made["machine"] = _machine(found)
        made |= {name: _table(found, name, figure) for name, figure in FIGURES.items()}
    if scale.exists():
        made["scale"] = _scale(json.loads(scale.read_text()))
    if relay.exists():
        made["relay"] = _relay(json.loads(relay.read_text()))
    return made


def _machine(found: Results) -> str:
    told = found.machine
    words = (
        f"Measured on {told['date']} on {told['cores']} cores with {told['memory_gb']} GB, "
        f"Linux {told['kernel']}; client and hosts share them. Compared: "
    )
    versions = dict.fromkeys(found.versions[tool] for tool in found.tools)
    return words + "; ".join(versions) + ".\n"


def _table(found: Results, name: str, figure: str) -> str:
    cell = _with_spread if name in SPREAD else _plain
    rows = [
        [title, str(n), *(cell(found, tool, n, step, figure) for tool in found.tools)]
        for step, title in STEPS.items()
        for n in ([1] if step in ALONE else found.sizes)
        if any(found.of(tool, n, step, figure) for tool in found.tools)
    ]
    return _markdown(["step", "hosts", *found.tools], rows)


def _with_spread(found: Results, tool: str, n: int, step: str, figure: str) -> str:
    """Median, least and most, and how often that of tfdeploy goes into it."""
    values = found.of(tool, n, step, figure)
    if not values:
        return ""
    median = found.median(tool, n, step, figure)
    ours = found.median("tfdeploy", n, step, figure)
    ratio = f" **{_short(median / ours)}×**" if tool != "tfdeploy" and ours and median else ""
    star = "\\*" if found.disturbed(tool, n, step) else ""
    return f"{_short(median)}{star} ({_short(min(values))}..{_short(max(values))}){ratio}"


def _plain(found: Results, tool: str, n: int, step: str, figure: str) -> str:
    median = found.median(tool, n, step, figure)
    return _short(median) if median else ""


def _short(value: float) -> str:
    """Three digits or so."""
    return f"{value:.{2 if value < 1 else 1 if value < 100 else 0}f}"


SCALE: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "wall s": ("wall_s", "{:.1f}".format),
    "CPU ms a host": ("cpu_ms_a_host", "{:.1f}".format),
    "peak MB": ("peak_mb", "{:.0f}".format),
    "threads": ("threads", "{}".format),
    "open files": ("files", "{}".format),
    "processes": ("processes", "{}".format),
}


def _scale(told: dict[str, Any]) -> str:
    head = ["hosts", "dead", "silent", "step", *SCALE]
    rows = [
        [str(row["n"]), str(row["dead"]), str(row["silent"]), STEPS[row["step"]]]
        + [form(row[key]) for key, form in SCALE.values()]
        for row in told["rows"]
    ]
    return _markdown(head, rows)


def _relay(told: dict[str, Any]) -> str:
    walls = {(row["n"], row["relay"]): row["wall_s"] for row in told["rows"]}
    rows = []
    for n in dict.fromkeys(n for n, _ in walls):
        each, once = walls[n, False], walls[n, True]
        rows.append([str(n), _short(each), _short(once), f"**{_short(each / once)}×**"])
    head = ["hosts", "from home to each, s", "from host to host, s", "ratio"]
    alone_s = told["mb"] * 1.048576 * 8 / told["mbit"]
    words = (
        f"{told['mb']} MiB over a way out of {told['mbit']:g} Mbit/s, "
        f"which takes {_short(alone_s)} s for one host at the very least:\n\n"
    )
    return words + _markdown(head, rows)


def _markdown(head: list[str], rows: Iterable[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *rows))


if __name__ == "__main__":
    sys.exit(main())
