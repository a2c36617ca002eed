"""Libraries that are imported when they are first used: importing takes most of the time of a short command."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["late", "pd"]


class _Late(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def late(name: str) -> Any:
    """Stand for the module of this name, which is imported when something in it is asked for.

    >>> late("colorsys").hsv_to_rgb(0.0, 0.0, 1.0)
    (1.0, 1.0, 1.0)
    """
    return _Late(name)


if TYPE_CHECKING:
    import pandas as pd
else:
    pd = late("pandas")
