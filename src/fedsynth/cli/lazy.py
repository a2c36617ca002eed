"""How a command is declared apart from its work, so that help is shown before anything heavy is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import typer

from fedsynth.cli.exit_codes import Code


def leads_to(place: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a declared command its work: `place` is "file:function" in `fedsynth.cli`, with the same arguments."""
    file, _, name = place.partition(":")

    def opened(declared: Callable[..., None]) -> Callable[..., None]:
        @wraps(declared)
        def command(**given: Any) -> None:
            try:
                getattr(import_module(f"fedsynth.cli.{file}"), name)(**given)
            except BrokenPipeError:  # the rest is for nobody; python's last flush must not fail over it
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(Code.UNREAD) from None

        return command

    return opened


def group(name: str, purpose: str) -> typer.Typer:
    """Commands that share their first word."""
    app = typer.Typer(name=name, help=purpose, no_args_is_help=True, rich_markup_mode=None)
    app.callback()(lambda: None)  # a group of one command stays a group
    return app
