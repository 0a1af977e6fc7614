"""What a run wrote: what was fetched to the controller, and what was not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import (
    escape_line,
    format_count,
    format_size,
    quote_path,
    shorten_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdeploy.commands.collect import CollectResult
    from tfdeploy.commands.fetch import FetchResult
    from tfdeploy.commands.resume import ResumeResult
    from tfdeploy.commands.running.run import FinishedRun
    from tfdeploy.output.console import Console
    from tfdeploy.results.outputs import Output, Outputs, SavedElsewhere, SkippedOutput
    from tfdeploy.run import Run

MAX_FILE_LINES = 10
MAX_NAMES = 4  # in one line
MODELS = (".keras", ".h5", "saved_model.pb")
MAX_ELSEWHERE = 5  # of each task


def print_new_results(console: Console, collected: CollectResult) -> None:
    """Print one line for each result that this object has not printed yet."""
    _print_new_checkpoints(console, collected)
    for bad in [bad for bad in collected.bad if bad not in console.printed.bad]:
        console.print_text(
            f"checkpoint {bad.name} is broken on its host and was not fetched: {bad.error}"
        )
    console.printed.bad |= set(collected.bad)
    _print_new_outputs(console, collected)


def print_collected(console: Console, collected: CollectResult) -> None:
    grown = [o for o in collected.outputs.unchanged if _has_grown(console, o)]
    grown += [o for o in collected.outputs.fetched if _has_grown(console, o)]
    print_new_results(console, collected)
    _print_outputs(console, grown)
    if not collected.of_chief:
        pass  # its checkpoints were not wanted
    elif not collected.chief_answered:
        console.print_text("no checkpoint was fetched, see the error")
    elif collected.checkpoints or _has_model(collected.outputs):
        pass
    elif collected.uses_tensorflow or not collected.source:
        console.print_text(_no_checkpoint(collected))
    for line in _output_summary(collected):
        console.print_text(line)
    counts = {"event file": collected.events, "log": collected.logs}
    fetched = " and ".join(format_count(count, kind) for kind, count in counts.items() if count)
    console.print_text(f"{fetched or 'no log'} in {collected.folder}")


def print_fetched(console: Console, fetched: FetchResult) -> None:
    for output in fetched.fetched[:MAX_FILE_LINES]:
        console.print_text(f"{output.folder}/{output.path} ({format_size(output.size)})")
    for skipped in fetched.skipped[:MAX_FILE_LINES]:
        console.print_text(_skipped_text(skipped))
    files = format_count(len(fetched.fetched), "file")
    total = format_size(sum(output.size for output in fetched.fetched))
    more = f"; {format_count(len(fetched.skipped), 'file')} skipped" if fetched.skipped else ""
    console.print_text(f"fetched {files} ({total}) into {fetched.folder}{more}")


def print_finished(console: Console, run: Run, finished: FinishedRun) -> None:
    print_collected(console, finished.collected)
    result = ending_text(finished.result, finished.exit, finished.reason)
    if finished.result == "succeeded" and _wrote_nothing(finished.collected):
        result = "ended with exit 0 and wrote nothing: no checkpoint, no output, no event file"
        outputs = finished.collected.outputs
        if outputs.unlisted or any(saved.exists for saved in outputs.elsewhere):
            result = "ended with exit 0; everything that it saved is on its host only"
        elif outputs.elsewhere or outputs.deleted:
            result = "ended with exit 0; what it saved was deleted"
    for line in _cut_off_lines(finished):
        console.print_text(line)
    console.print_text(f"run {run.id} {result}")


def ending_text(result: str, code: int, reason: str) -> str:
    """Return how a run ended, as the end of a sentence. `reason` is why it was stopped, "" if by a
    command."""
    texts = {
        "failed": f"failed (exit {code})",
        "lost": "is lost",
        "stopped": ": ".join(filter(None, ("was stopped", escape_line(reason)))),
        "ended": "ended after max_duration_s",
    }
    return texts.get(result, result)


def _print_new_checkpoints(console: Console, collected: CollectResult) -> None:
    newest, *older = collected.checkpoints or (None,)
    if newest and any(each.name not in console.printed.verified for each in collected.checkpoints):
        more = f" (and {len(older)} older)" if older else ""
        console.print_text(f"checkpoint {collected.folder / 'checkpoints' / newest.name}{more}")
        if not newest.verified and all(console.printed.verified.values()):  # this remark comes once
            console.print_text(
                "not verified: the chief's host has no TensorFlow, or too little memory, to read it"
            )
    console.printed.verified |= {each.name: each.verified for each in collected.checkpoints}


def _print_new_outputs(console: Console, collected: CollectResult) -> None:
    new = {(output.folder, output.path): output for output in collected.outputs.fetched}
    new = {path: output for path, output in new.items() if path not in console.printed.outputs}
    console.printed.outputs |= {path: output.size for path, output in new.items()}
    _print_outputs(console, list(new.values()))


def _has_grown(console: Console, output: Output) -> bool:
    """Return whether a file was fetched and printed while its task wrote it."""
    size = console.printed.outputs.get((output.folder, output.path))
    return size not in (None, output.size)


def _print_outputs(console: Console, outputs: Sequence[Output]) -> None:
    for output in outputs[:MAX_FILE_LINES]:
        console.print_text(f"output {output.folder}/{output.path} ({format_size(output.size)})")
    more = outputs[MAX_FILE_LINES:]
    if more:
        total = format_size(sum(output.size for output in more))
        console.print_text(f"and {format_count(len(more), 'more output')} ({total})")


def resume_source(resumed: ResumeResult) -> str:
    """Return what the chief's script finds when it starts again."""
    if resumed.run.inventory.trials.points:
        return "what its hosts have recorded of its trials"
    source, files = resumed.source, resumed.files
    found = [f"{source.name} on {source.host or 'the controller'}"] if source else []
    if files:
        count = len(files) - MAX_NAMES
        more = f" and {format_count(count, 'more file')}" if count > 0 else ""
        found.append(f"its chief's files {', '.join(files[:MAX_NAMES])}{more}")
    return " and ".join(found) or "the beginning"


def _has_model(outputs: Outputs) -> bool:
    """Return whether the script saved a model of Keras, and so probably no checkpoint."""
    return any(each.path.endswith(MODELS) for each in (*outputs.fetched, *outputs.unchanged))


def _no_checkpoint(collected: CollectResult) -> str:
    """Return where checkpoints were looked for, and what was found there instead."""
    source, names = collected.source, collected.found_names
    if not source:
        return "no checkpoint: the chief was never started"
    if collected.outputs.fetched or collected.outputs.unchanged:
        return f"no TensorFlow checkpoint in the chief's {source}; its other outputs were fetched"
    if names is None:
        return f"no checkpoint: the chief created no folder {source}"
    if names == ():
        return f"no checkpoint: the chief's {source} is empty"
    more = f"; it has {', '.join(names)}" if names else ""
    return f"no checkpoint: the chief's {source} has no complete one{more}"


def _output_summary(collected: CollectResult) -> Iterator[str]:
    """Yield lines about the outputs on the controller, and about those that were not fetched."""
    outputs = collected.outputs
    fetched = (*outputs.fetched, *outputs.unchanged)
    if fetched:
        total = format_size(sum(output.size for output in fetched))
        yield f"{format_count(len(fetched), 'output')} ({total}) in {collected.folder}/outputs"
    for skipped in outputs.skipped[:MAX_FILE_LINES]:
        how = f"; {how_to_fetch(skipped, collected.flags)}" if skipped.can_fetch else ""
        yield f"{_skipped_text(skipped)}{how}"
    more = outputs.skipped[MAX_FILE_LINES:]
    if more:
        total = format_size(sum(skipped.size for skipped in more))
        yield f"and {format_count(len(more), 'more file')} ({total}) skipped"
    for place in outputs.deleted:
        yield f"{place} deleted its own directory, with everything that it wrote there"
    has_results = bool(fetched or collected.checkpoints)
    yield from _elsewhere_lines(outputs, collected.flags, has_results=has_results)
    if outputs.unlisted:
        files = format_count(sum(unlisted.files for unlisted in outputs.unlisted), "file")
        total = format_size(sum(unlisted.size for unlisted in outputs.unlisted))
        tasks = shorten_names([unlisted.task for unlisted in outputs.unlisted])
        yield (
            f"{files} ({total}) of {tasks} skipped: no `outputs` pattern in hosts.toml matches "
            f"them; tfdeploy fetch {outputs.unlisted[0].task} . {collected.flags}"
        )


def _skipped_text(skipped: SkippedOutput) -> str:
    file = f"{skipped.path} of {skipped.task} ({format_size(skipped.size)})"
    return f"skipped on {skipped.host}: {file}: {skipped.why}"


def how_to_fetch(output: SkippedOutput | SavedElsewhere, flags: str) -> str:
    """Return what to type; `flags` name the run."""
    return f"tfdeploy fetch {output.task} {quote_path(output.path)} {flags}".rstrip()


def _elsewhere_lines(outputs: Outputs, flags: str, *, has_results: bool) -> Iterator[str]:
    """Yield lines about what tasks wrote in no folder that is fetched; about what they deleted only
    if there is no other result."""
    saved = [each for each in outputs.elsewhere if each.exists or not has_results]
    by_task = [[each for each in saved if each.task == task] for task in {s.task: 0 for s in saved}]
    for of_task in by_task:
        yield from (_elsewhere_text(each, flags) for each in of_task[:MAX_ELSEWHERE])
    more = sum(len(of_task[MAX_ELSEWHERE:]) for of_task in by_task) + outputs.elsewhere_more
    if more:
        lists = f"tfdeploy collect --json {flags}".rstrip()
        yield f"and {format_count(more, 'more file')} outside of the tasks' directories: {lists}"


def _elsewhere_text(saved: SavedElsewhere, flags: str) -> str:
    if not saved.exists:
        return (
            f"{saved.task} on {saved.host} saved in {saved.path}, which was deleted: "
            "save in checkpoint_dir, or add the folder to `outputs`"
        )
    return (
        f"{saved.task} on {saved.host} saved in {saved.path}, which is not fetched: "
        f"{how_to_fetch(saved, flags)}; a folder whose path does not change can be added to "
        "`outputs`"
    )


def _cut_off_lines(finished: FinishedRun) -> Iterator[str]:
    """Yield a line for each worker that had saved files when it was stopped because the chief has
    succeeded. Workers that only wait for others end so, too."""
    outputs = finished.collected.outputs
    for task in finished.cut_off:
        saved = [o.path for o in (*outputs.fetched, *outputs.unchanged) if o.task == task]
        saved += [skipped.path for skipped in outputs.skipped if skipped.task == task]
        if saved:
            yield (
                f"{task} was still running some time after the chief's success and was stopped; it "
                f"had saved {shorten_names(saved)}. Workers get more time with "
                'ends_with = "all" in [training]'
            )


def _wrote_nothing(collected: CollectResult) -> bool:
    """Return whether the run wrote nothing but logs."""
    outputs = collected.outputs
    files = (*outputs.fetched, *outputs.unchanged, *outputs.skipped)
    return not (collected.checkpoints or collected.bad or collected.events or files)
