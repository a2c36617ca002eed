"""Libraries that are imported when they are first used: importing takes most of the time of a short command."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["deferred", "fft", "late", "pd", "special", "stats"]


class _Late(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if "actual" not in self.__dict__:
            library, _, member = self.__name__.partition(":")
            if isinstance(sys.modules.get(library), _Late):  # while it is deferred
                del sys.modules[library]
            module = import_module(library)
            self.__dict__["actual"] = getattr(module, member) if member else module
        return getattr(self.__dict__["actual"], name)


def late(name: str) -> Any:
    """Stand for the module of this name, which is imported when something in it is asked for.

    After a colon, the name of something in the module: that is what is stood for.

    >>> late("colorsys").hsv_to_rgb(0.0, 0.0, 1.0)
    (1.0, 1.0, 1.0)
    >>> late("decimal:Decimal").from_float(0.5)
    Decimal('0.5')
    """
    return _Late(name)


@contextmanager
def deferred(*names: str) -> Iterator[None]:
    """Within this, packages that import these modules get what `late` returns; with a colon, if they take that too.

    >>> with deferred("colorsys"):
    ...     import colorsys
    >>> colorsys.hsv_to_rgb(0.0, 0.0, 1.0)
    (1.0, 1.0, 1.0)
    """
    modules = {
        library: late(library) for name in names if (library := name.partition(":")[0]) not in sys.modules
    }
    members = [name.partition(":") for name in names if ":" in name]
    for library, _, member in members:
        if library in modules:
            setattr(modules[library], member, late(f"{library}:{member}"))
    sys.modules.update(modules)
    try:
        yield
    finally:
        for library, module in modules.items():
            if sys.modules.get(library) is module:
                del sys.modules[library]
        for library, _, member in members:
            if library in modules:
                delattr(modules[library], member)


if TYPE_CHECKING:
    import pandas as pd
    from scipy import fft, special, stats
else:
    pd, fft, special, stats = (late(name) for name in ("pandas", "scipy.fft", "scipy.special", "scipy.stats"))
