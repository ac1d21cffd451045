"""The group `cairn`: global options, and how every ending becomes a sentence and an exit status."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from cairn.cli import checking, commits, compare, content, history, keeping, names, space, stores
from cairn.cli.text import safe
from cairn.errors import CairnError

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    envvar="CAIRN_STORE",
    metavar="PATH",
    help="The store's folder, or CAIRN_STORE; else the nearest folder at or above this one that is a store, or whose "
    "folder `store` is one.",
)
@click.version_option(package_name="cairn-store", prog_name="cairn", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, store: Path | None) -> None:
    """Keep every checkpoint of a training run, exactly, for the price of what changed.

    \b
    Example:
      $ cairn init
      $ cairn commit checkpoint-500 --step 500
      $ cairn log -n 5
      $ cairn checkout best:val_loss:min ./best
      $ cairn gc --keep-last 3 --dry-run

    REV names a commit: a run (its newest), a tag, latest, step:N, epoch:N (its last step), best:METRIC[:min|max],
    RUN@N (step N of a run), RUN/attempt-N[@N], or 6 and more digits of a commit id; each may be followed by ~N, N
    commits back.

    --json prints one JSON document with the fields that the library's objects have, under the same names. Numbers that
    JSON lacks are the strings "NaN", "Infinity" and "-Infinity"; a blob is [id, bytes]; paths are strings.

    \b
    Exit status:
      0    done
      1    failed
      2    wrong usage
      3    not a store
      4    not found, or ambiguous
      5    conflict: the run moved, or the step or name exists
      6    damage found
      7    diff --exit-code: there are differences
      130  interrupted
    """
    context.obj = store


_GROUPS = (stores, commits, history, content, compare, names, keeping, space, checking)

for _command in (command for group in _GROUPS for command in group.COMMANDS):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit status."""
    status = execute(args)
    sys.exit(_flush(status))


def execute(args: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status, with everything that went wrong said on stderr."""
    for stream in (sys.stdout, sys.stderr):
        # Names may hold what the terminal's encoding lacks.
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # suppressed
    try:
        result = cli.main(args, prog_name="cairn", standalone_mode=False)
    except click.ClickException as error:
        return _misused(error)
    except CairnError as error:
        return _fail(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{where}", CairnError.exit_code)
    except Exception as error:
        return _fail(_unexpected(error), CairnError.exit_code)
    return result if isinstance(result, int) else 0


def _misused(error: click.ClickException) -> int:
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        error.show()
        return error.exit_code
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and error.option_name == "--store" and context is not None:
        command = context.command_path.partition(" ")[2]
        return _fail(f"--store stands before the command: `cairn --store PATH {command}`", error.exit_code)
    hint = f"; try `{context.command_path} --help`" if context else ""
    return _fail(error.format_message().rstrip(".") + hint, error.exit_code)


def _unexpected(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"unexpected {type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {error}; this is a bug in "
        f"cairn: please report this line with the command and `cairn --version`"
    )


def _fail(message: str, status: int) -> int:
    # Nobody may be reading stderr either.
    with contextlib.suppress(OSError):
        click.echo(f"cairn: {safe(message)}", err=True)
    return status


def _flush(status: int) -> int:
    """Write out what is buffered; Python would report a failure later, as a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        status = status or CairnError.exit_code
        if not isinstance(error, BrokenPipeError):
            _fail(f"cannot write to the output: {error.strerror}", status)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
