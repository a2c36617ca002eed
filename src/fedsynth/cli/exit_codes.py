"""How a command ends: one sentence for whoever reads it, and an exit code that a script can tell apart."""

from __future__ import annotations

import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

from fedsynth.cli.output import tell
from fedsynth.errors import FedsynthError

_SMALLER = "choose a smaller model or batch (fedsynth recipes NAME lists what --set takes), or fewer rows"

_SIGNALLED = 130  # the command line's library ends so after an interrupt


class Code(IntEnum):
    """How a command ended, for scripts."""

    DONE = 0
    FAILED = 1  # a check failed: more leaks than is claimed, a ledger was changed, rows do not fit
    REFUSED = 2  # bad input, or going on would break a promise
    INTERRUPTED = 3  # and can be resumed
    BUG = 70  # an error that nobody foresaw; the number that sysexits.h has for it
    UNREAD = 141  # who read the output has gone, as in `fedsynth ... | head`; the shell's number for it


def stop_gently() -> None:
    """Let Ctrl-C and SIGTERM interrupt this process, also one that a script started in the background."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


@contextmanager
def ending(debug: bool = False) -> Iterator[None]:
    """Turn an error into its sentence and exit code. With `debug` its trace is shown; that of a bug is always kept."""
    try:
        yield
    except SystemExit as left:
        if left.code != _SIGNALLED:  # a command that does not know how to go on by itself
            raise
        tell("fedsynth: interrupted; start the same command again")
        sys.exit(Code.INTERRUPTED)
    except FedsynthError as error:
        code = Code.INTERRUPTED if error.resumable else Code.REFUSED
        _end(code, error.in_flags or str(error), error, debug)
    except OSError as error:
        named = f"{error.filename}: {error.strerror}"
        _end(Code.REFUSED, str(error) if error.filename is None else named, error, debug)
    except Exception as error:
        if _short_of_memory(error):
            what = str(error).splitlines()[0][:200] if str(error) else "no more"
            _end(Code.REFUSED, f"out of memory ({what}); {_SMALLER}", error, debug)
        where = "above" if debug else _keep_trace(error)
        words = f"an internal error, not a fault in your input: {type(error).__name__}: {error}"
        _end(Code.BUG, f"{words}\nfedsynth: please report it with its trace: {where}", error, debug)


def _short_of_memory(error: Exception) -> bool:
    """Whether memory ran out; by the error's name, so that torch is not imported to tell."""
    named = type(error).__name__ in ("MemoryError", "OutOfMemoryError")
    return named or "can't allocate memory" in str(error)


def _end(code: Code, words: str, error: Exception, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exception(error)
    tell(f"fedsynth: {words}")
    sys.exit(code)


def _keep_trace(error: Exception) -> str:
    """Write the trace to a file that only its owner may read, as a message can hold values of rows; return where."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="fedsynth-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.writelines(traceback.format_exception(error))
    except OSError:
        return "run the same again as fedsynth --debug COMMAND"
    return f"{file.name} (read it first: it can hold values of your rows)"
