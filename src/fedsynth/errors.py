"""The errors, told apart by what the user can do about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_COMMAND = re.compile(r"(`?\bfedsynth [a-z][^;`]*)")  # a whole command is for a terminal, whoever reads it
_FLAGS: tuple[tuple[str, str], ...] = (
    (r"--no-privacy\b", "private=False"),
    (r"--resume\b", "Synthesizer.resume"),
    (r"--accept ([a-z]+)", r'accept="\1"'),
    (
        r"--(unit|trust|transport|recipe) (client|record|central|local|distributed|secagg|he|auto)\b",
        r'\1="\2"',
    ),
    (r"--set ([a-z_]+=)", r"\1"),
    (r"--out\b", "folder"),
    (r"--(?:type|types|try|condition|plot|network) ", ""),
    (r"--set\b", "a keyword"),
)


class FedsynthError(Exception):
    """Any refusal by fedsynth; its text is one sentence a user can act on.

    The command exits with 2, or with 3 if the same work can be gone on with (`resumable`).
    """

    resumable = False

    in_flags: str = ""  # the same sentence for the command line, where the text was put into Python's words


def in_python(text: str) -> str:
    """Put a message that names flags into the words of a Python call; whole commands stay as they are.

    >>> in_python("a private run needs --epsilon; use --no-privacy for a baseline")
    'a private run needs epsilon=; use private=False for a baseline'
    >>> in_python("say --accept inferred, or run `fedsynth schema review --help`")
    'say accept="inferred", or run `fedsynth schema review --help`'
    """
    pieces = _COMMAND.split(text)
    for place in range(0, len(pieces), 2):
        for flag, keyword in _FLAGS:
            pieces[place] = re.sub(flag, keyword, pieces[place])
        pieces[place] = re.sub(r"--([a-z][a-z-]*)( (?=[\d'\"]))?", _keyword, pieces[place])
    return "".join(pieces)


def _keyword(flag: re.Match[str]) -> str:
    return flag[1].replace("-", "_") + ("" if flag.string[flag.end() :].startswith(":") else "=")


def speaks_python(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let the errors of a Python call name keywords, not flags; the command line still has `in_flags`."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except FedsynthError as error:
            if not isinstance(error, OSError):
                error.in_flags = error.in_flags or str(error)
                error.args = (in_python(str(error)),)
            raise

    return call


class BadInput(FedsynthError, ValueError):
    """A value, file or argument that cannot be used: names it, what was expected, and what to do."""


class CannotWrite(OSError, BadInput):
    """A file that the system does not let us write; made of the number, the words and the name that it gives."""

    def __str__(self) -> str:
        return f"{self.filename}: cannot be written ({self.strerror}); choose another place"


class Incompatible(FedsynthError):
    """Parts that do not fit together; raised when a recipe is built, not in round 40."""


class NotPrivate(FedsynthError):
    """Going on would break the guarantee that was asked for."""


class BudgetExhausted(FedsynthError):
    """The next release would cost more than the budget allows; raised before it, never after."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message that helps with a misspelt name.

    >>> nearest("dpd_fvea", ["dpd_fvae", "fvae"])
    "did you mean 'dpd_fvae'? (known: dpd_fvae, fvae)"
    """
    known = sorted(known)
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    listed = f"known: {', '.join(known)}"
    return f"did you mean {close[0]!r}? ({listed})" if close else listed
