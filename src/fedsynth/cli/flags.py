"""How commands declare their flags: shared ones once, and those of a request from its fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth.errors import BadInput
from fedsynth.synthesis.request import Request

PAID_DELTA = 1e-6


def option(purpose: str, *names: str, **more: Any) -> Any:
    """A flag with its help; without `names` it is called as its parameter is."""
    return typer.Option(*names, help=purpose, **more)


def argument(purpose: str, metavar: str | None = None) -> Any:
    """A word without a flag, with its help."""
    return typer.Argument(help=purpose, metavar=metavar)


AsJson = Annotated[bool, option("Print one JSON object on standard output.", "--json")]
ClientColumn = Annotated[str | None, option("Column that says who owns a row.")]
Config = Annotated[Path | None, option("TOML with any of these flags, and [arguments].")]
Delta = Annotated[float, option("Probability mass that epsilon does not bound; well below 1 / clients.")]
Device = Annotated[str | None, option("cpu or cuda.")]
Force = Annotated[bool, option("Overwrite a schema that exists.", "--force")]
MinimumSites = Annotated[int, option("Federation: stop when fewer sites than this take part.")]
Quiet = Annotated[bool, option("No progress.", "--quiet")]
RoundTimeout = Annotated[
    float, option("Federation: seconds after which a silent site is left out of a round or step.")
]
Run = Annotated[Path, argument("A finished run.", "RUN")]
Settings = Annotated[
    list[str] | None,
    option("A recipe's argument; `fedsynth recipes NAME` lists them.", "--set", metavar="KEY=VALUE"),
]
ShadowMinutes = Annotated[
    float | None, option("With --deep: how long shadow generators may train (default 10).")
]


def group(name: str, purpose: str) -> typer.Typer:
    """Commands that share their first word."""
    app = typer.Typer(name=name, help=purpose, no_args_is_help=True, rich_markup_mode=None)
    app.callback()(lambda: None)  # a group of one command stays a group
    return app


def request_flags(*left_out: str, **purposes: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each field of `Request` that has help.

    The command's parameter `request` stands for them and takes those that were set, by the names of the fields.
    `left_out` names fields that the command has no flag for, `purposes` has help that differs from the field's.
    """
    flagged = [item for item in fields(Request) if item.metadata and item.name not in left_out]

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**values: Any) -> None:
            flags = {item.name: _value(item, values.pop(_parameter(item))) for item in flagged}
            command(request={name: value for name, value in flags.items() if value is not None}, **values)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            derived = (_declared(item, purposes.get(item.name, item.metadata["help"])) for item in flagged)
            parameters += derived if parameter.name == "request" else [parameter]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return called

    return declare


_KINDS = {"str": str, "int": int, "float": float, "tuple[str, ...]": list[str]}


def _parameter(item: Field[Any]) -> str:
    return str(item.metadata.get("off", item.name))


def _declared(item: Field[Any], purpose: str) -> inspect.Parameter:
    """The parameter that typer makes a flag of; None and False mean that it was not given."""
    known = item.metadata
    kind = Path if known.get("path") else _KINDS.get(str(item.type).removesuffix(" | None"))
    if "off" in known:
        flag: Any = Annotated[bool, option(purpose, f"--{known['off'].replace('_', '-')}")]
    elif known.get("argument"):
        flag = Annotated[kind | None, argument(purpose)]  # type: ignore[operator]
    else:
        more = {key: known[key] for key in ("metavar", "max") if key in known}
        flag = Annotated[kind | None, option(purpose, **more)]  # type: ignore[operator]
    default = False if "off" in known else None
    return inspect.Parameter(
        _parameter(item), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=flag
    )


def _value(item: Field[Any], flag: Any) -> Any:
    """The field's value that a flag sets; None where the flag was left out."""
    if "off" in item.metadata:
        return False if flag else None
    if isinstance(flag, list):
        return tuple(flag) or None
    return str(flag) if isinstance(flag, Path) else flag


def settings_in(texts: list[str] | None, flag: str = "--set") -> list[tuple[str, str]]:
    """Names and values of every KEY=VALUE, in the order given.

    >>> settings_in(["batch-size = 8"])
    [('batch_size', '8')]
    """
    pairs = []
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"{flag} {text}: expected KEY=VALUE, for example {flag} clip=0.5")
        pairs.append((name.strip().replace("-", "_"), value.strip()))
    return pairs


def names_in(text: str) -> list[str]:
    """Names with commas between.

    >>> names_in("a, b,")
    ['a', 'b']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def budget_in(text: str) -> tuple[float, float]:
    """Epsilon and delta of `--pay`.

    >>> budget_in("epsilon=0.5,delta=1e-5")
    (0.5, 1e-05)
    """
    parts = dict(part.partition("=")[::2] for part in text.replace(" ", "").split(","))
    try:
        epsilon, delta = float(parts.pop("epsilon")), float(parts.pop("delta", PAID_DELTA))
    except (KeyError, ValueError):
        raise BadInput(
            f"--pay {text}: expected epsilon=E or epsilon=E,delta=D, for example --pay epsilon=0.5"
        ) from None
    if parts or not epsilon > 0 or not 0 < delta < 1:
        raise BadInput(f"--pay {text}: expected a positive epsilon and a delta in (0, 1), and nothing else")
    return epsilon, delta
