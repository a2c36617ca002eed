"""The command `fedsynth inspect`: look at data that nobody may look at."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from fedsynth.assess.report.inspection import LABELS, NAME, write_inspection
from fedsynth.assess.report.labelling import write_labelling
from fedsynth.cli.exit_codes import Code
from fedsynth.cli.federated import FIRST_S, earlier_lines
from fedsynth.cli.federation import federation_installed
from fedsynth.cli.run import read_clients, schema_of
from fedsynth.errors import BadInput, Incompatible
from fedsynth.inspection.agenda import Tell
from fedsynth.inspection.config import inspection_of, model_keys, read_request
from fedsynth.inspection.findings import Findings
from fedsynth.inspection.inspection import inspect
from fedsynth.inspection.primary import read_model
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.verdict import Finding


def inspect_data(
    config: Path,
    out: Path,
    against: Path | None,
    federation: Path | None,
    minimum_sites: int,
    round_timeout: float,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train generative models on rows that meet a criterion, and show what they look like and how they differ."""
    request, keys = read_request(config)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out}: exists already; choose another --out")
    schema = schema_of(request)
    asked = inspection_of(config, keys, request, schema, here=federation is None)
    tell: Tell = (lambda words: None) if quiet else (lambda words: typer.echo(f"{words} ...", err=True))
    try:
        if federation is None:
            findings = inspect(asked, read_clients(request, schema), out=out, against=against, tell=tell)
        else:
            _refuse_against(against)
            sent = model_keys(config, keys)
            findings = _over_sites(federation, asked, sent, out, minimum_sites, round_timeout, tell)
    except KeyboardInterrupt:
        where = (
            f"in {out}/ledger.jsonl" if federation is None else "in the ledgers of the server and the sites"
        )
        typer.echo(f"fedsynth: interrupted; what was released so far is {where} and counts", err=True)
        raise typer.Exit(Code.INTERRUPTED) from None
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


def _refuse_against(against: Path | None) -> None:
    if against is not None:
        raise Incompatible(
            "--against: over sites every site's own ledger adds its inspections up, but the coordinator does not go on "
            "from an earlier ledger yet; leave it out and hold the two pages side by side"
        )


def _over_sites(
    federation: Path,
    asked: Inspection,
    model: dict[str, str],
    out: Path,
    minimum_sites: int,
    round_s: float,
    tell: Tell,
) -> Findings:
    """The same where the data are."""
    with federation_installed():
        from fedsynth.deploy.inspection.coordinator import OverSites, Sent
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.node import wait_for_server
    kit = Kit.load(federation, "coordinator")
    sent = Sent(read_model(Path(model["onnx"])) if "onnx" in model else b"", model.get("entry_point", ""))
    earlier = earlier_lines(asked.request, asked.schema)
    over = OverSites(kit, asked, sent, minimum_sites, round_s, earlier)
    wait_for_server(kit, FIRST_S)
    out.mkdir(parents=True, exist_ok=True)
    return over.inspect(out, tell)


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
