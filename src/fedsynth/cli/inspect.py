"""The command `fedsynth inspect`: look at data that nobody may look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli.run import read_clients, schema_of
from fedsynth.errors import BadInput
from fedsynth.inspect.config import inspection_of, read_request
from fedsynth.inspect.findings import Findings
from fedsynth.inspect.inspection import inspect
from fedsynth.inspect.verdict import Finding
from fedsynth.report.inspection import LABELS, NAME, write_inspection
from fedsynth.report.labelling import write_labelling

INTERRUPTED = 3


def register(app: typer.Typer) -> None:
    """Add the command to the main one."""
    app.command(name="inspect")(inspect_data)


def inspect_data(
    config: Annotated[
        Path, typer.Option(metavar="FILE.toml", help="Data, model, selections, training, test.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="A new folder for the page, the models and the ledger.")
    ],
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="EARLIER", help="An earlier inspection: its cost counts, and what changed is shown."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as one JSON object.")] = False,
) -> None:
    """Train generative models on rows that meet a criterion, and show what they look like and how they differ.

    Example: fedsynth inspect --config pixels.toml --out INSPECTION
    """
    request, keys = read_request(config)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out}: exists already; choose another --out")
    schema = schema_of(request)
    raw = read_clients(request, schema)
    asked = inspection_of(config, keys, request, schema)
    try:
        findings = inspect(
            asked,
            raw,
            out=out,
            against=against,
            tell=(lambda words: None) if quiet else (lambda words: typer.echo(f"{words} ...", err=True)),
        )
    except KeyboardInterrupt:
        typer.echo(
            f"fedsynth: interrupted; what was released so far is in {out}/ledger.jsonl and counts", err=True
        )
        raise typer.Exit(INTERRUPTED) from None
    write_inspection(findings, out / NAME)
    if not findings.schema.classes and findings.asked.classes:
        write_labelling(findings, out / LABELS)
    if as_json:
        typer.echo(
            json.dumps({"out": str(out), **findings.to_dict(), "privacy": findings.statement.to_dict()})
        )
        return
    typer.echo("\n".join(_lines(findings)))
    typer.echo(
        f"\n{findings.statement}\n\nWritten to {out}: " + ", ".join(sorted(p.name for p in out.iterdir()))
    )


def _lines(findings: Findings) -> list[str]:
    """The verdict in a few lines."""
    answers = {True: "yes", False: "no", None: "cannot be told"}
    lines = [
        f"{name}: {model.words}" + (" (noise only)" if model.empty else "")
        for name, model in findings.models.items()
    ]
    if len(findings.models) == 2:
        lines.append(f"do they differ: {answers[findings.fires]}")
        lines += [f"  {_told(finding)}" for finding in findings.contrast]
    if findings.changed is not None:
        lines.append(f"did anything change: {answers[findings.changed]}")
    return lines


def _told(finding: Finding) -> str:
    if finding.threshold is None:
        return f"{finding.name}: {finding.value:.4g}"
    mark = " <- more than noise" if finding.fires else ""
    return f"{finding.name}: {finding.value:.4g} (threshold {finding.threshold:.4g}){mark}"
