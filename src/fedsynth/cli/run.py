"""The commands `fedsynth run` and `fedsynth sample`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from fedsynth.assess.report.public import write_public
from fedsynth.cli import federated, flags
from fedsynth.cli.exit_codes import Code
from fedsynth.cli.progress import TrainingProgress
from fedsynth.data.clients import RawClients, clients_from, image_clients_from, text_clients_from
from fedsynth.data.image import is_images, read_images, read_owners, write_images
from fedsynth.data.schema import Schema
from fedsynth.data.table import read_table, write_table
from fedsynth.data.text import read_texts
from fedsynth.errors import BadInput
from fedsynth.recipes.registry import parse, recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.generator import Images
from fedsynth.synthesis.payer import check_payer
from fedsynth.synthesis.released_files import checked_run, complete, renewing, synthetic_path
from fedsynth.synthesis.request import Request, read_toml
from fedsynth.synthesis.synthesizer import Synthesizer

_OWNERS = {"client_column": ("clients", "split", "split_seed"), "clients": ("client_column", "split_seed")}
DEFAULT_ROWS = 10_000  # not the number of real records: that is private


def run(
    data: Path | None,
    schema: Path | None,
    recipe: str | None,
    client_column: str | None,
    clients: int | None,
    split: str | None,
    label: str | None,
    text_column: str | None,
    epsilon: float | None,
    delta: float | None,
    rounds: int | None,
    noise_multiplier: float | None,
    no_privacy: bool,
    unit: str | None,
    trust: str | None,
    transport: str | None,
    budget: Path | None,
    federation: Path | None,
    minimum_sites: int,
    round_timeout: float,
    config: Path | None,
    set_: list[str] | None,
    seed: int | None,
    device: str | None,
    simulate_speeds: str | None,
    rows: int | None,
    accept: list[str] | None,
    out: Path | None,
    resume: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make a synthetic data set out of many clients' data."""
    if out is None:
        raise BadInput("--out: say where the run shall be written, for example --out RUN")
    given: dict[str, Any] = {
        "data": str(data) if data else None,
        "schema": str(schema) if schema else None,
        "recipe": recipe,
        "client_column": client_column,
        "clients": clients,
        "split": split,
        "label": label,
        "text_column": text_column,
        "epsilon": epsilon,
        "delta": delta,
        "rounds": rounds,
        "noise_multiplier": noise_multiplier,
        "private": False if no_privacy else None,
        "unit": unit,
        "trust": trust,
        "transport": transport,
        "budget": str(budget) if budget else None,
        "seed": seed,
        "device": device,
        "simulate_speeds": simulate_speeds,
        "rows": rows,
        "accept": tuple(accept or ()),
    }
    try:
        if resume:
            if config or set_:
                raise BadInput("--resume goes on with the run as it was begun; leave out --config and --set")
            federal = federated.is_federated(out)
            made = _resume_federated(out, federation, quiet) if federal else _resume(out, given, quiet)
        else:
            request = request_of(given, config, set_ or [])
            if federation is None:
                made = _start(out, request, quiet)
            else:
                federated.start(
                    federation, out, request, schema_of(request), minimum_sites, round_timeout, quiet
                )
                made = _resume_federated(out, federation, quiet)
    except KeyboardInterrupt:
        started = Folder(out).recipe.exists() or federated.is_federated(out)
        advice = f"go on with fedsynth run --out {out} --resume" if started else "nothing was written yet"
        typer.echo(f"fedsynth: interrupted; {advice}", err=True)
        raise typer.Exit(Code.INTERRUPTED) from None
    if made is None:
        _print_closed(out, as_json)
    else:
        _print_result(made, out, as_json)


def request_of(given: dict[str, Any], config: Path | None, settings: list[str]) -> Request:
    """What the command line and its file ask for."""
    keys = read_toml(config) if config else {}
    pairs = dict(flags.settings_in(settings))
    for name, kind in (("rounds", int), ("noise_multiplier", float)):
        if name in pairs:  # the same as --rounds and --noise-multiplier: the budget must know of them
            keys[name] = _number(name, pairs.pop(name), kind)
    said = {name: value for name, value in given.items() if value is not None and value != ()}
    for (
        one,
        others,
    ) in _OWNERS.items():  # the command line goes before the file, also where it says it otherwise
        if one in said:
            keys = {name: value for name, value in keys.items() if name not in others}
    keys |= said
    if pairs:
        keys["arguments"] = {**_table(keys), **pairs}
    return Request.from_toml(keys)


def _start(out: Path, request: Request, quiet: bool) -> Synthesizer:
    if (
        request.clients is not None and request.split_seed is None
    ):  # a resumed run must deal the same rows again
        request = request.changed(split_seed=Rng().integer() if request.seed is None else request.seed)
    Folder(out).refuse_existing()
    schema = schema_of(request)
    raw = read_clients(request, schema)
    synthesizer = Synthesizer.of(request, schema)
    with TrainingProgress(request.epsilon, quiet=quiet) as watch:
        synthesizer.fit(raw, folder=out, watch=watch)
    write_sample(synthesizer, out)
    return synthesizer


def _resume_federated(out: Path, federation: Path | None, quiet: bool) -> Synthesizer | None:
    """The finished run, or None where a key-holder has to open its generator first."""
    federated.resume(out, federation, quiet)
    if Folder(out).closed:
        return None
    return _with_sample(out)


def _with_sample(out: Path) -> Synthesizer:
    """A finished run, with its synthetic data drawn if they are not there yet."""
    made = Synthesizer.load(out)
    if not synthetic_path(Folder(out), made.schema).exists():
        write_sample(made, out)
    return made


def _resume(out: Path, given: dict[str, Any], quiet: bool) -> Synthesizer:
    place = Folder(out)
    request = Request.from_toml(place.read_recipe())
    if place.finished:
        complete(place)
        if synthetic_path(place, Schema.load(place.schema)).exists():
            typer.echo(f"{out} is finished; nothing to resume.", err=True)
        return _with_sample(out)
    request.refuse_changes(given)
    request = request.changed(data=given["data"], device=given["device"])
    schema = Schema.load(place.schema)
    synthesizer = Synthesizer.of(request, schema)
    with TrainingProgress(request.epsilon, quiet=quiet) as watch:
        synthesizer.resume(read_clients(request, schema), out, watch=watch)
    write_sample(synthesizer, out)
    return synthesizer


def _table(keys: dict[str, Any]) -> dict[str, Any]:
    found = keys.get("arguments", {})
    if not isinstance(found, dict):
        raise BadInput(f"arguments={found!r}: expected a table of names and values")
    return found


def _number(name: str, text: str, kind: type) -> Any:
    try:
        return parse(text, kind)
    except ValueError as error:
        raise BadInput(f"--set {name}={text}: {error}") from None


def schema_of(request: Request) -> Schema:
    """The schema, with the label and client column that the command line names."""
    if request.schema is None:
        raise BadInput(
            "--schema: a public schema is needed; start with `fedsynth schema draft DATA --out schema.json`"
        )
    schema = Schema.load(request.schema)
    if request.private:
        unit, _ = recipe_named(request.recipe).protection(request.unit, request.trust)
        owner = request.client_column or schema.client
        check_payer(schema, None if request.clients else owner, unit)
    schema = schema.with_label(request.label) if request.label else schema
    return schema.with_client(request.client_column) if request.client_column else schema


def read_clients(request: Request, schema: Schema) -> RawClients:
    """Rows and their owners, from the file that the request names."""
    if request.data is None:
        raise BadInput(
            "DATA: name the file or folder that holds the rows, for example fedsynth run patients.csv ..."
        )
    column = request.client_column or (schema.client if request.clients is None else None)
    rng = Rng(request.split_seed).at("split")
    if schema.kind == "image":
        images, labels = read_images(request.data)
        if column is not None:
            return image_clients_from(images, labels, owners=read_owners(request.data, column))
        if request.clients is None:
            raise BadInput(
                "--clients: say to how many simulated clients the images are dealt, or with --client-column which "
                "array of an npz file names their owners"
            )
        return image_clients_from(images, labels, clients=request.clients, split=request.split, rng=rng)
    if schema.kind == "text":
        texts = read_texts(request.data, request.text_column or "text", column)
        owners = None if column is None else texts[column].to_numpy()
        return text_clients_from(
            texts[request.text_column or "text"].tolist(),
            schema,
            owners=owners,
            clients=None if column else request.clients,
            rng=rng,
        )
    if is_images(request.data):
        raise BadInput(
            f"{request.data}: images, but the schema is of a {schema.kind}; expected a CSV or Parquet file"
        )
    frame = read_table(request.data, schema)
    if column is None and schema.client in frame.columns:
        frame = frame.drop(columns=schema.client)
    return clients_from(
        frame, client_column=column, clients=request.clients, split=request.split, label=schema.label, rng=rng
    )


def write_sample(synthesizer: Synthesizer, out: Path) -> None:
    """The synthetic data that come with a run, and the page that may be published with them."""
    rows = synthesizer.request.rows or DEFAULT_ROWS
    drawn = synthesizer.sample(rows, seed=synthesizer.request.seed)
    place = Folder(out)
    write_released(drawn, place, synthetic_path(place, synthesizer.schema))
    write_public(out)


def write_released(drawn: pd.DataFrame | Images, place: Folder, path: Path) -> None:
    """Write the synthetic data that belong to a run, so that its ledger names them."""
    with renewing(place, path.name) as temporary:
        write_drawn(drawn, temporary)


def write_drawn(drawn: pd.DataFrame | Images, path: Path) -> None:
    """Write sampled rows or images by the path's ending."""
    if isinstance(drawn, pd.DataFrame):
        write_table(drawn, path)
    else:
        images, labels = drawn
        write_images(images, path, None if labels is None else np.asarray(labels))


def _print_result(made: Synthesizer, out: Path, as_json: bool) -> None:
    for note in made.notes:
        typer.echo(f"fedsynth: {note}", err=True)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "privacy": made.privacy.to_dict()}))
        return
    typer.echo(str(made.privacy))
    typer.echo(f"\nWritten to {out}: " + ", ".join(sorted(path.name for path in out.iterdir())))


def _print_closed(out: Path, as_json: bool) -> None:
    statement = checked_run(out).statement
    if as_json:
        typer.echo(json.dumps({"out": str(out), "sealed": True, "privacy": statement.to_dict()}))
        return
    typer.echo(
        f"{statement}\n\nThe generator is sealed; a key-holder opens it: fedsynth keys open {out} --key he.secret"
    )


def conditions(texts: list[str], columns: Sequence[str]) -> dict[str, str]:
    """The value that each column shall have; a column's own name may have an equals sign in it.

    >>> conditions(["a=b=1", "age = 40"], ["a=b", "age"])
    {'a=b': '1', 'age': '40'}
    """
    wanted: dict[str, str] = {}
    for text in texts:
        known = max((name for name in columns if text.startswith(f"{name}=")), key=len, default=None)
        name, equals, value = text.partition("=") if known is None else (known, "=", text[len(known) + 1 :])
        if not equals:
            raise BadInput(
                f'--condition {text}: expected COLUMN=VALUE, for example --condition income=">50K"'
            )
        if name.strip() in wanted:
            raise BadInput(f"--condition {text}: {name.strip()!r} has a condition already; give one a column")
        wanted[name.strip()] = value.strip()
    return wanted


def sample(
    folder: Path,
    rows: int,
    out: Path,
    condition: list[str] | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Draw more synthetic data from a finished run, at no further privacy cost."""
    if out.exists():
        raise BadInput(f"{out}: exists already; choose another name")
    made = Synthesizer.load(folder)
    wanted = conditions(condition or [], made.schema.names)
    drawn = made.sample(rows, condition=wanted, seed=seed)
    own = synthetic_path(Folder(folder), made.schema)
    if out.resolve() == own.resolve():
        write_released(drawn, Folder(folder), own)
    else:
        write_drawn(drawn, out)
    typer.echo(json.dumps({"out": str(out), "rows": rows}) if as_json else f"Wrote {rows} rows to {out}.")
