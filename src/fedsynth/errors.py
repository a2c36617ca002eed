"""The errors, told apart by what the user can do about them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class FedsynthError(Exception):
    """Any refusal by fedsynth; its text is one sentence a user can act on (the command exits with 2)."""


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
