"""The command `fedsynth run`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth.cli import flags
from fedsynth.cli.exit_codes import Code
from fedsynth.cli.flags import option, request_flags
from fedsynth.cli.output import files_in, fold, show, tell
from fedsynth.cli.stopwatch import Stopwatch
from fedsynth.data.configuration import read_file
from fedsynth.errors import BadInput
from fedsynth.synthesis.request import Request

if TYPE_CHECKING:
    from fedsynth.data.schema import Schema
    from fedsynth.recipes.settings import Role
    from fedsynth.synthesis.synthesizer import Synthesizer

_CALIBRATED: tuple[
    tuple[str, Role, type], ...
] = (  # a --set is the same as the flag: the budget must know of it
    ("rounds", "rounds", int),
    ("noise_multiplier", "noise", float),
)
_OWNERS = {"client_column": ("clients", "split", "split_seed"), "clients": ("client_column", "split_seed")}


@request_flags()
def run(
    *,
    request: dict[str, Any],
    federation: Annotated[
        Path | None, option("Over real sites: what `fedsynth federation create` made.")
    ] = None,
    minimum_sites: flags.MinimumSites = 2,
    round_timeout: flags.RoundTimeout = 600.0,
    config: flags.Config = None,
    preset: Annotated[
        str | None, option("Settings as published, for example paper: see `fedsynth recipes NAME`.")
    ] = None,
    set_: flags.Settings = None,
    out: Annotated[Path | None, option("Folder for the run; must not exist.")] = None,
    resume: Annotated[bool, option("Go on with the run in --out.", "--resume")] = False,
    quiet: flags.Quiet = False,
    profile: Annotated[bool, option("Say where the time went.", "--profile")] = False,
    as_json: flags.AsJson = False,
) -> None:
    """Make a synthetic data set out of many clients' data.

    Give --epsilon: the noise is calibrated to spend exactly that. The run folder then holds
    the synthetic data, the generator, the privacy statement, the ledger and the history.

    Example: fedsynth run patients.csv --schema schema.json --epsilon 1 --out RUN
    """
    clock = Stopwatch()
    from fedsynth.cli import federated
    from fedsynth.synthesis.folder import Folder
    from fedsynth.synthesis.inputs import schema_of

    if out is None:
        raise BadInput("--out: say where to write the run, for example --out RUN")
    try:
        if resume and (config or preset or set_):
            raise BadInput(
                "--resume goes on with the run as it was begun; leave out --config, --preset and --set"
            )
        if resume and not federated.is_federated(out):
            _print_result(_resume(out, request, quiet, clock), out, as_json)
            return
        if not resume:
            begun = request_of(request, config, set_ or [], preset)
            if federation is None:
                _print_result(_start(out, begun, quiet, clock), out, as_json)
                return
            schema = schema_of(begun)
            federated.start(federation, out, begun, schema, minimum_sites, round_timeout, quiet)
        federated.resume(out, federation, quiet)
        clock.end("training over the sites")
        if Folder(out).closed:
            _print_closed(out, as_json)
        else:
            _print_result(_with_sample(out, clock), out, as_json)
    except KeyboardInterrupt:
        started = Folder(out).recipe.exists() or federated.is_federated(out)
        advice = f"go on with fedsynth run --out {out} --resume" if started else "nothing was written yet"
        tell(f"fedsynth: interrupted; {advice}")
        raise typer.Exit(Code.INTERRUPTED) from None
    finally:
        if profile:
            clock.tell()


def request_of(
    request: dict[str, Any], config: Path | None, settings: list[str], preset: str | None = None
) -> Request:
    """The request of a command line, its file and its --set: the command line goes before the file, a preset last."""
    from fedsynth.recipes.registry import all_recipes

    keys = read_file(config) if config else {}
    recipe = all_recipes().get(request.get("recipe") or keys.get("recipe") or Request.recipe)
    pairs = dict(flags.settings_in(settings))
    for key, role, kind in _CALIBRATED:
        for name in {key, *(recipe.named(role) if recipe else ())} & set(pairs):
            keys[key] = _number(name, pairs.pop(name), kind)
    for one, others in _OWNERS.items():
        if one in request:
            keys = {name: value for name, value in keys.items() if name not in others}
    keys |= request
    published = recipe.preset(preset) if preset is not None and recipe else {}
    if pairs or published:
        arguments = keys.get("arguments", {})
        if not isinstance(arguments, dict):
            raise BadInput(f"arguments={arguments!r}: expected a table of names and values")
        keys["arguments"] = {**published, **arguments, **pairs}
    return Request.from_toml(keys)


def _number(name: str, text: str, kind: type) -> Any:
    from fedsynth.recipes.registry import parse

    try:
        return parse(text, kind)
    except ValueError as error:
        raise BadInput(f"--set {name}={text}: {error}") from None


def _start(out: Path, request: Request, quiet: bool, clock: Stopwatch) -> Synthesizer:
    from fedsynth.synthesis.folder import Folder
    from fedsynth.synthesis.inputs import schema_of

    Folder(out).refuse_existing()
    return _train(out, request, schema_of(request), quiet, clock)


def _resume(out: Path, flags_set: dict[str, Any], quiet: bool, clock: Stopwatch) -> Synthesizer:
    from fedsynth.data.schema import Schema
    from fedsynth.synthesis.folder import Folder
    from fedsynth.synthesis.released_files import complete, synthetic_path

    place = Folder(out)
    request = Request.from_toml(place.read_recipe())
    schema = Schema.load(place.schema)
    if place.finished:
        complete(place)
        if synthetic_path(place, schema).exists():
            tell(f"{out} is finished; nothing to resume.")
        return _with_sample(out, clock)
    request.refuse_changes(flags_set)
    request = request.changed(**{name: flags_set.get(name) for name in ("data", "device", "matmul")})
    return _train(out, request, schema, quiet, clock, resume=True)


def _train(
    out: Path, request: Request, schema: Schema, quiet: bool, clock: Stopwatch, *, resume: bool = False
) -> Synthesizer:
    from fedsynth.cli.progress import TrainingProgress
    from fedsynth.cli.sample import write_sample
    from fedsynth.synthesis.inputs import path_of
    from fedsynth.synthesis.synthesizer import Synthesizer

    clock.end("libraries")
    data, synthesizer = path_of(request), Synthesizer.of(request, schema)
    with TrainingProgress(request.epsilon, quiet=quiet, clock=clock) as watch:
        if resume:
            synthesizer.resume(data, out, watch=watch)
        else:
            if synthesizer.request.chosen:
                watch.note(synthesizer.request.chosen)
            synthesizer.fit(data, folder=out, watch=watch, note=watch.note)
    clock.end("last fit and statement")
    write_sample(synthesizer, out, clock)
    return synthesizer


def _with_sample(out: Path, clock: Stopwatch) -> Synthesizer:
    """Load a finished run, and draw its synthetic data if they are not there yet."""
    from fedsynth.cli.sample import write_sample
    from fedsynth.synthesis.folder import Folder
    from fedsynth.synthesis.released_files import synthetic_path
    from fedsynth.synthesis.synthesizer import Synthesizer

    synthesizer = Synthesizer.load(out)
    if not synthetic_path(Folder(out), synthesizer.schema).exists():
        write_sample(synthesizer, out, clock)
    return synthesizer


def _print_result(synthesizer: Synthesizer, out: Path, as_json: bool) -> None:
    for note in synthesizer.notes:
        tell(f"fedsynth: {note}")
    statement = synthesizer.privacy
    words = f"{fold(str(statement))}\n\n{files_in(out)}\n\n{_next(out, synthesizer)}"
    show(as_json, {"out": str(out), "privacy": statement.to_dict()}, words)


def _next(out: Path, synthesizer: Synthesizer) -> str:
    """The commands that come next."""
    from fedsynth.data.modality import modality_of

    schema, data = synthesizer.schema, synthesizer.request.data
    known = data is not None and Path(data).exists()  # an address may hold a password
    fate = "may be published" if synthesizer.privacy.private else "has no complete promise: do not publish it"
    ending = modality_of(schema).ending
    rows = quote(str(data)) if known else "FILE" if ending else "FOLDER"
    return (
        f"Next: open {out / 'public.html'} in a browser (it {fate}), or\n"
        f"  fedsynth report {out} --real {rows}   # is it faithful and useful?\n"
        f"  fedsynth sample {out} --rows 1000 --out more{ending}"
    )


def _print_closed(out: Path, as_json: bool) -> None:
    from fedsynth.synthesis.released_files import checked_run

    statement = checked_run(out).statement
    hint = f"The generator is sealed; a key-holder opens it: fedsynth keys open {out} --key he.secret"
    result = {"out": str(out), "sealed": True, "privacy": statement.to_dict()}
    show(as_json, result, f"{statement}\n\n{hint}")
