"""Print the tables of results/*.json as Markdown."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import paper, results
from bench.results import ALONE, STEPS, Results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HERE = Path(__file__).parent
FIGURES = {"wall": "wall_s", "cpu": "cpu_s", "memory": "peak_mb", "moved": "moved_mb"}
SPREAD = ("wall", "cpu")  # shown with minimum, maximum and the ratio


def main() -> None:
    for name, block in _blocks().items():
        print(f"## {name}\n\n{block}")


def _blocks() -> dict[str, str]:
    peers, scale, relay, connections = (
        HERE / "results" / f"{name}.json" for name in ("peers", "scale", "relay", "connections")
    )
    blocks = {}
    if peers.exists():
        found = results.load(peers)
        blocks["machine"] = _machine(found)
        blocks |= {name: _table(found, name, figure) for name, figure in FIGURES.items()}
    if scale.exists():
        blocks["scale"] = _scale(json.loads(scale.read_text()))
    if relay.exists():
        blocks["relay"] = _relay(json.loads(relay.read_text()))
    if connections.exists():
        blocks["connections"] = _connections(json.loads(connections.read_text()))
    wire = HERE / "results" / "wire.json"
    if wire.exists():
        blocks["wire"] = _wire(json.loads(wire.read_text()))
        blocks["paper"] = _paper()
    return blocks


def _wire(report: dict[str, Any]) -> str:
    columns = {
        "hosts": "hosts", "cluster": "the cluster", "start_plain": "start, uncompressed",
        "start": "start", "start_of_eight": "start, 8 tasks a host",
        "start_cpu_us": "start, CPU µs",
        "status": "status", "stop": "stop", "heartbeat": "heartbeat",
        "first_heartbeat": "heartbeat, first",
    }  # fmt: skip
    lines = [f"| {' | '.join(columns.values())} |", f"|{' --: |' * len(columns)}"]
    for row in report["bytes"]:
        cells = ("" if row[name] is None else f"{row[name]:,}" for name in columns)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| hosts | CPU s | peak MB |", "| --: | --: | --: |"]
    lines += [f"| {row['hosts']:,} | {row['cpu_s']} | {row['peak_mb']} |" for row in report["plan"]]
    return "\n".join(lines) + "\n"


def _machine(found: Results) -> str:
    machine = found.machine
    words = (
        f"Measured on {machine['date']} on {machine['cores']} cores "
        f"with {machine['memory_gb']} GB, Linux {machine['kernel']}; "
        "client and hosts share them. Compared: "
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
    """Return the median, minimum and maximum, and the ratio of the median to tfdeploy's."""
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
    """Return about three significant digits."""
    return f"{value:.{2 if value < 1 else 1 if value < 100 else 0}f}"


SCALE: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "wall s": ("wall_s", "{:.1f}".format),
    "living shown, s": ("shown_s", "{:.1f}".format),
    "CPU ms a host": ("cpu_ms_a_host", "{:.1f}".format),
    "peak MB": ("peak_mb", "{:.0f}".format),
    "threads": ("threads", "{}".format),
    "open files": ("files", "{}".format),
    "processes": ("processes", "{}".format),
}


def _scale(report: dict[str, Any]) -> str:
    lost = [name for name in ("dead", "silent") if any(row[name] for row in report["rows"])]
    known = {
        title: (key, form)
        for title, (key, form) in SCALE.items()
        if any(key in row for row in report["rows"])
    }
    head = ["hosts", *lost, "step", *known]
    rows = [
        [_hosts(row), *(str(row[name]) for name in lost), STEPS[row["step"]]]
        + [form(row[key]) if key in row else "" for key, form in known.values()]
        for row in report["rows"]
    ]
    return _markdown(head, rows)


def _hosts(row: dict[str, Any]) -> str:
    return f"{row['n']:,}{' (stand-in)' if row.get('standin') else ''}"


def _paper() -> str:
    rows = [list(row) for row in paper.table(paper.load())]
    head = ["one worker on each host", *(f"{n:,} hosts" for n in paper.SIZES)]
    limits = [list(limit) for limit in paper.limits()]
    return _markdown(head, rows) + "\n" + _markdown(["limit", "hosts"], limits)


def _relay(report: dict[str, Any]) -> str:
    walls = {(row["n"], row["relay"]): row["wall_s"] for row in report["rows"]}
    rows = []
    for n in dict.fromkeys(n for n, _ in walls):
        each, once = walls[n, False], walls[n, True]
        rows.append([str(n), _short(each), _short(once), f"**{_short(each / once)}×**"])
    head = ["hosts", "from the controller to each, s", "from host to host, s", "ratio"]
    alone_s = report["mb"] * 1.048576 * 8 / report["mbit"]
    words = (
        f"{report['mb']} MiB over an uplink of {report['mbit']:g} Mbit/s, "
        f"which takes at least {_short(alone_s)} s for one host:\n\n"
    )
    return words + _markdown(head, rows)


CONNECTIONS = {
    "daemon": "connection daemon",
    "own": "connections of each command",
    "openssh": "connection daemon with OpenSSH",
}


def _connections(report: dict[str, Any]) -> str:
    """Return median, minimum and maximum of wall and CPU; ratios to the connection daemon."""
    samples: dict[tuple[int, str, bool, str], list[dict[str, Any]]] = defaultdict(list)
    for row in report["rows"]:
        samples[row["rtt_ms"], row["step"], row["cold"], row["kind"]].append(row)
    rows = []
    for (rtt_ms, step, cold, kind), found in sorted(samples.items(), key=_connections_order):
        daemon = samples[rtt_ms, step, cold, "daemon"]
        cells = [_spread_of(found, daemon, figure) for figure in ("wall_s", "cpu_s")]
        memory = statistics.median(row["memory_mb"] for row in found)
        title = f"{STEPS[step]}{', the first command' if cold else ''}"
        rows.append([f"{rtt_ms} ms", title, CONNECTIONS[kind], *cells, _short(memory)])
    head = ["round trip", "step", "connections", "wall s", "CPU s", "MB afterwards"]
    return f"{report['n']} hosts.\n\n" + _markdown(head, rows)


def _connections_order(entry: tuple[tuple[int, str, bool, str], Any]) -> tuple[int, bool, str, int]:
    rtt_ms, step, cold, kind = entry[0]
    return rtt_ms, not cold, step, list(CONNECTIONS).index(kind)


def _spread_of(found: list[dict[str, Any]], daemon: list[dict[str, Any]], figure: str) -> str:
    values = [row[figure] for row in found]
    median, base = (statistics.median(row[figure] for row in rows) for rows in (found, daemon))
    ratio = "" if found is daemon else f" **{_short(median / base)}×**"
    return f"{_short(median)} ({_short(min(values))}..{_short(max(values))}){ratio}"


def _markdown(head: list[str], rows: Iterable[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *rows))


if __name__ == "__main__":
    main()
