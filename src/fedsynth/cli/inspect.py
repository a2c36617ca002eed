"""The command `fedsynth inspect`: look at data that nobody may look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsynth.cli import flags, output
from fedsynth.cli.exit_codes import Code
from fedsynth.cli.flags import option
from fedsynth.cli.output import files_in, fold, show
from fedsynth.errors import BadInput, Incompatible

if TYPE_CHECKING:
    from fedsynth.inspection.agenda import Tell
    from fedsynth.inspection.findings import Findings
    from fedsynth.inspection.request import Inspection
    from fedsynth.inspection.verdict import Finding


def inspect(
    config: Annotated[Path, option("Data, model, selections, training, test.", metavar="FILE.toml")],
    out: Annotated[Path, option("A new folder for the page, the models and the ledger.", metavar="DIR")],
    against: Annotated[
        Path | None,
        option("An earlier inspection: its cost counts, and what changed is shown.", metavar="EARLIER"),
    ] = None,
    federation: Annotated[
        Path | None,
        option(
            "Over real sites: what `fedsynth federation create` made. Sites judge their own rows; each must "
            "allow it with inspect = true under [policy] of its site.toml.",
            metavar="KITS",
        ),
    ] = None,
    minimum_sites: flags.MinimumSites = 2,
    round_timeout: flags.RoundTimeout = 600.0,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Look at rows that nobody may see, by way of synthetic ones.

    Trains generative models on rows that meet a criterion, and shows what they look like and how they differ.

    Over sites, the file's [data] names the schema alone (each site's site.toml has the rows), and [model] an ONNX file,
    which goes to the sites and runs there only, or an entry point that they have installed and allow.

    Example: fedsynth inspect --config pixels.toml --out INSPECTION

    Example: fedsynth inspect --federation kits --config pixels.toml --out INSPECTION
    """
    from fedsynth.assess.report.inspection import LABELS, NAME, write_inspection
    from fedsynth.assess.report.labelling import write_labelling
    from fedsynth.inspection import inspection as simulated
    from fedsynth.inspection.config import inspection_of, model_keys, read_request
    from fedsynth.inspection.previous import ROOT
    from fedsynth.synthesis.inputs import read_clients, schema_of

    request, keys = read_request(config)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out}: exists already; choose another --out")
    schema = schema_of(request)
    inspection = inspection_of(config, keys, request, schema, here=federation is None)
    tell: Tell = (lambda words: None) if quiet else (lambda words: output.tell(f"{words} ..."))
    try:
        if federation is None:
            raw = read_clients(request, schema)
            findings = simulated.inspect(inspection, raw, out=out, against=against, tell=tell)
        elif against is not None:
            raise Incompatible(
                "--against: over sites every site's own ledger adds its inspections up, but the coordinator does not "
                "go on from an earlier ledger yet; leave it out and hold the two pages side by side"
            )
        else:
            model = model_keys(config, keys)
            findings = _over_sites(federation, inspection, model, out, minimum_sites, round_timeout, tell)
    except KeyboardInterrupt:
        where = (
            f"in {out}/ledger.jsonl" if federation is None else "in the ledgers of the server and the sites"
        )
        output.tell(f"fedsynth: interrupted; what was released so far is {where} and counts")
        raise typer.Exit(Code.INTERRUPTED) from None
    write_inspection(findings, out / NAME)
    if not findings.schema.classes and findings.labelled.classes:
        write_labelling(findings, out / LABELS)
    statement = findings.statement
    result = {"out": str(out), **findings.to_dict(), "privacy": statement.to_dict()}
    following = f"Next: open {out / NAME} in a browser"
    if (out / LABELS).exists():
        following += f"; {out / LABELS} asks you for labels"
    words = [*_lines(findings), "", f"{fold(str(statement))}\n\n{files_in(out, ROOT)}\n\n{following}"]
    show(as_json, result, "\n".join(words))


def _over_sites(
    federation: Path,
    inspection: Inspection,
    model: dict[str, str],
    out: Path,
    minimum_sites: int,
    round_s: float,
    tell: Tell,
) -> Findings:
    """Run the inspection where the data are."""
    from fedsynth.cli.federated import FIRST_S, federation_installed
    from fedsynth.inspection.primary import read_model

    with federation_installed():
        from fedsynth.deploy.inspection.coordinator import OverSites, Sent
        from fedsynth.deploy.job import earlier_lines
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.node import wait_for_server
    kit = Kit.load(federation, "coordinator")
    sent = Sent(read_model(Path(model["onnx"])) if "onnx" in model else b"", model.get("entry_point", ""))
    earlier = earlier_lines(inspection.request, inspection.schema)
    over = OverSites(kit, inspection, sent, minimum_sites, round_s, earlier)
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
        lines += [f"  {_line(finding)}" for finding in findings.contrast]
    if findings.changes:
        lines.append(f"did anything change: {answers[findings.changed]}")
    return [*lines, *([findings.needed] if findings.needed else [])]


def _line(finding: Finding) -> str:
    if finding.threshold is None:
        return f"{finding.name}: {finding.value:.4g}"
    mark = " <- more than noise" if finding.fires else ""
    return f"{finding.name}: {finding.value:.4g} (threshold {finding.threshold:.4g}){mark}"
