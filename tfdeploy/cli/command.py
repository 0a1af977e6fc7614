"""The application, and how a command joins it: its group in --help, and its examples."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, fields
from functools import cache, wraps
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, cast, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from tfdeploy.errors import TfdeployError
from tfdeploy.formatting.humanize import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import ParamSpec

    from typer._click.core import Command as AnyCommand

    # Typer has Click, and its types, in a private package.
    from typer._click.core import Context, Parameter
    from typer._click.exceptions import NoSuchOption
    from typer._click.formatting import HelpFormatter

    P = ParamSpec("P")

# The groups of commands in --help; those of branches are before the last one.
GROUPS = PREPARE, TRAIN, WATCH, RESULTS, DISK, SHELL = (
    "Prepare", "Train", "Watch", "Results", "Runs on the hosts", "Shell",
)  # fmt: skip


# Errors of Click, which Typer has in a private module.
UNKNOWN_OPTION = "NoSuchOption"
MISSING = "MissingParameter"
BYTE = re.compile(r"\\udc(?=[89a-f][0-9a-f])")  # as repr() writes a byte that is no UTF-8
# What versions of Typer say of a word that is not a number: `x` is in it, or not.
NO_NUMBER = re.compile(
    r"(is not )a valid int(?:eger)?(?: range)?\.?$|Input should be a valid int.*"
)
SIMILAR = 0.8  # how like an option a mistyped one is, so that it is suggested; difflib's ratio


# Commands that change nothing on a host: they go on without a newer record that is not believed.
READERS: set[str] = set()
LINE_PRINTERS: set[str] = set()  # commands whose --json is JSON lines

VERBOSE = ("-v", "--verbose")
VERBOSE_HELP = "Print on standard error what tfdeploy does; -vv also what Paramiko does."
INTERRUPTED = 130  # a shell's exit code for a command that SIGINT ended


@dataclass(frozen=True)
class Group:
    """Options that several commands have: a parameter whose default is a group takes its fields."""


class WrongWords(typer.BadParameter):
    """A command line that Typer refuses, with a text of its own."""

    def format_message(self) -> str:
        return self.message


@contextmanager
def _reason_to_abort() -> Iterator[None]:
    """Raise errors with a reason for those that Typer would end with nothing but "Aborted!", and
    exit with a word where it would exit without one."""
    try:
        yield
    except typer.Abort:
        raise TfdeployError("not confirmed: nothing was changed") from None
    except EOFError as error:  # for example of a module that is cut off
        raise RuntimeError(f"unexpected end of a file: {error}") from error
    except KeyboardInterrupt:
        print_interrupted()
        raise typer.Exit(INTERRUPTED) from None


def print_interrupted() -> None:
    with suppress(OSError):  # the terminal may be closed
        sys.stderr.write("\ninterrupted\n")


class CommandGroup(TyperGroup):
    """The application: its --help lists the commands by group."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: Context | None = None,
        **extra: object,
    ) -> Context:
        with _reason_to_abort():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Context) -> object:
        with _reason_to_abort():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, AnyCommand | None, list[str]]:
        """Resolve as Typer does; of an unknown command suggest only the nearest one."""
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            close = difflib.get_close_matches(args[0], self.commands, n=1)
            suggestion = f" Did you mean {close[0]!r}?" if close else ""
            raise WrongWords(f"No such command '{escape_line(args[0])}'.{suggestion}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        commands = [each for each in self.commands.values() if isinstance(each, Command)]
        width = max(len(each.name or "") for each in commands)
        others = (each.group for each in commands if each.group not in GROUPS)
        groups = (*GROUPS[:-1], *others, GROUPS[-1])
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in groups}
        for each in commands:
            name = (each.name or "").ljust(width)  # so that the groups' columns agree
            rows[each.group].append((name, each.get_short_help_str(limit=200)))
        for group, members in rows.items():
            with formatter.section(group):
                formatter.write_dl(members)


class Command(TyperCommand):
    """A command: its --help ends with examples."""

    @property
    def group(self) -> str:
        return self.rich_help_panel or ""

    @property
    def _examples(self) -> list[str]:
        return (self.epilog or "").splitlines()

    def get_params(self, ctx: Context) -> list[Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, _verbose_option(), help_option]

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse as Typer does; say of an unknown option how the program gets it, and of an argument
        that is missing or unexpected what a whole command looks like."""
        ctx.allow_extra_args = True
        example, given = self._examples[0].partition("  #")[0].rstrip(), [*args]
        try:
            extra = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = NO_NUMBER.sub(
                lambda found: f"{found[1] or 'expected '}a whole number.", error.message
            )
            error.message = BYTE.sub(r"\\x", error.message)
            if type(error).__name__ != MISSING:
                raise
            raise WrongWords(f"{error.format_message()} For example: {example}", ctx) from None
        except Exception as error:
            if type(error).__name__ != UNKNOWN_OPTION:
                raise
            found = self._unknown_option(cast("NoSuchOption", error), given)
            raise WrongWords(found, ctx) from None
        if extra and not ctx.resilient_parsing:
            found = escape_line(extra[0])
            raise WrongWords(f"Unexpected argument '{found}'. For example: {example}", ctx)
        return extra

    def invoke(self, ctx: Context) -> object:
        verbosity = ctx.params.pop("verbose")
        if self.group == SHELL:  # a shell's start-up file has it
            return super().invoke(ctx)
        from tfdeploy.cli import debug_log

        with debug_log.logged(self.name or "", verbosity):
            return super().invoke(ctx)

    def _unknown_option(self, error: NoSuchOption, given: Sequence[str]) -> str:
        """Return what to type instead of an unknown option."""
        option, found = str(error.option_name), str(error.message)
        if similar := difflib.get_close_matches(option, error.possibilities or (), 1, SIMILAR):
            found += f" (did you mean {similar[0]}?)"
        words = next((each for each in self.params if each.name == "words"), None)
        if words is None:
            return found
        typed = next((word for word in given if word.partition("=")[0] == option), option)
        short = f"tfdeploy {self.name} -- {typed}"
        example = self._examples[0] if words.required else short
        return f"{found}; words for the program follow --: {example}"

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Return the words of the first line, as other programs write them: `[TASK...]`."""
        arguments = (each for each in self.get_params(ctx) if isinstance(each, TyperArgument))
        return ["[OPTIONS]", *map(_usage, arguments)]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """List arguments and options; an argument without its type of Python, which Typer adds."""
        rows: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                name, text = record
                kind = parameter.param_type_name
                rows[kind].append((name.partition(" <")[0] if kind == "argument" else name, text))
        for kind, members in rows.items():
            if members:
                with formatter.section(f"{kind.title()}s"):
                    formatter.write_dl(members)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the examples, which Typer would wrap, with double line breaks."""
        lines = "".join(f"  {example}\n" for example in self._examples)
        formatter.write(f"\nExamples:\n{lines}")


def _only_verbose(
    verbose: Annotated[int, typer.Option(*VERBOSE, count=True, show_default=False,
                       help=VERBOSE_HELP)] = 0,
) -> None:  # fmt: skip
    """A command of which only the option is used."""


@cache
def _verbose_option() -> Parameter:
    """Return -v as Typer makes it: what its classes take differs from version to version."""
    alone = typer.Typer(add_completion=False)
    alone.command()(_only_verbose)
    return typer.main.get_command(alone).params[0]


def _usage(argument: TyperArgument) -> str:
    text = (argument.metavar or "") + ("..." if argument.nargs == -1 else "")
    return text if argument.required else f"[{text}]"


app = typer.Typer(
    cls=CommandGroup,
    help="Turn machines that you reach by SSH into one TensorFlow cluster, train on it, "
    "and fetch the checkpoints.",
    no_args_is_help=True,
    add_completion=False,  # shells/ has scripts that know the colon of worker:1
    pretty_exceptions_enable=False,
    # Rich's boxes take as long as all the rest of --help, and break what one wants to copy.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def add_command(
    group: str,
    *examples: str,
    name: str | None = None,
    reads: bool = False,
    prints_lines: bool = False,
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Return a decorator that adds a command to a group of --help, with examples at its end.

    One that `reads` changes nothing on a host. One that `prints_lines` prints JSON lines with
    --json, not one document.
    """
    text = "\n".join(f"tfdeploy {example}" for example in examples)

    def add(function: Callable[P, None]) -> Callable[P, None]:
        command = name or function.__name__
        READERS.update([command] if reads else [])
        LINE_PRINTERS.update([command] if prints_lines else [])
        join = app.command(command, cls=Command, rich_help_panel=group, epilog=text)
        join(_with_fields(function))
        return function

    return add


def _with_fields(function: Callable[P, None]) -> Callable[P, None]:
    """Return the function as Typer reads it, with the fields of its groups."""
    parameters = inspect.signature(function).parameters.values()
    groups = {
        each.name: type(each.default) for each in parameters if isinstance(each.default, Group)
    }
    if not groups:
        return function

    @wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> None:
        for name, group in groups.items():
            given[name] = group(**{one.name: given.pop(one.name) for one in fields(group)})
        function(*args, **given)

    read: list[inspect.Parameter] = []
    for each in parameters:
        group = groups.get(each.name)
        hints = get_type_hints(group or function, include_extras=True)
        taken = fields(group) if group else (each,)
        read += [
            each.replace(name=one.name, default=one.default, annotation=hints[one.name])
            for one in taken
        ]
    vars(call)["__signature__"] = inspect.Signature(read)
    call.__annotations__ = {each.name: each.annotation for each in read}
    return call


def verbose_after_name(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with each -v from before a command's name after it."""
    flags = [*takewhile(re.compile("-v+|--verbose").fullmatch, arguments)]
    rest = arguments[len(flags) :]
    return [*rest[:1], *flags, *rest[1:]]


def run(arguments: Sequence[str]) -> None:
    """Run the application. Typer would build each command before it looks for the named one, which
    takes longer than all the rest of a short command."""
    named = copy(app)
    named.registered_commands = [
        each for each in app.registered_commands if each.name in arguments[:1]
    ] or app.registered_commands
    named()
