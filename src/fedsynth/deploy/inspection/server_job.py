"""The server's side of an inspection over sites: ask them, calibrate to those that agree, ask, train, hand over."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedsynth.data.schema import Schema
from fedsynth.deploy.inspection.over_sites import AtSites, Call, Declined
from fedsynth.deploy.job import Tell, earlier_ledger
from fedsynth.deploy.link.channel import Channel
from fedsynth.deploy.link.ledger_heads import LedgerHeads
from fedsynth.deploy.link.patience import Patience
from fedsynth.errors import FedsynthError
from fedsynth.inspection.agenda import Agenda
from fedsynth.inspection.plan import ModelSource, hash_of
from fedsynth.inspection.released import FILE, ReleasedAnswers
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.selection import Selection
from fedsynth.privacy.chain import head_path
from fedsynth.privacy.ledger import Ledger, priced
from fedsynth.rng import Rng
from fedsynth.synthesis.payer import Payer
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.training import check_claim

LEDGER = "ledger.jsonl"


def inspect(
    assignment: Mapping[str, Any], channel: Channel, folder: Path, tell: Tell, heads: LedgerHeads
) -> None:
    """Bring the inspection to its end; one that was interrupted after its first release is not gone on with."""
    if not (folder / FILE).is_file():
        folder.mkdir(exist_ok=True)
        _conduct(assignment, channel, folder, tell, heads)


def inspection_results(folder: Path) -> list[Path]:
    """Return the models, what was told of the selections, and the ledger: all of it noisy."""
    ledger = folder / LEDGER
    named = (*sorted(folder.glob("*.safetensors")), folder / FILE, ledger, head_path(ledger))
    return [path for path in named if path.exists()]


def _conduct(
    assignment: Mapping[str, Any], channel: Channel, folder: Path, tell: Tell, heads: LedgerHeads
) -> None:
    """The whole inspection, with its files in this folder."""
    last_news: dict[str, str] = {}

    def news(site: str, version: int, what: str) -> None:
        last_news[site] = what
        tell(sites=dict(last_news))

    payer = Payer(Ledger(folder / LEDGER), assignment["run"])
    released = [line for line in payer.ledger.lines() if line.run == payer.name]
    if released:
        raise FedsynthError(
            f"the inspection was interrupted after {len(released)} releases (the server's job ended); they are in "
            "the ledgers of the server and the sites, and count. Begin a new one for what the sites' budgets leave"
        )
    if not payer.ledger.lines():
        payer.begin_with(earlier_ledger(assignment, folder))
    looked(call_of(assignment, channel, news, heads), payer).save(folder)


def looked(call: Call, payer: Payer) -> ReleasedAnswers:
    """All steps of an inspection, over the sites that agree to it as it is calibrated."""
    inspection, rng = call.inspection, Rng(call.inspection.request.seed)
    spent = [priced(line, "client", "add-remove") for line in payer.ledger.lines()]
    roster = call.gather()
    while True:
        check_claim(inspection.request, inspection.schema, "client", roster.clients)
        agenda = Agenda.of(inspection, roster.clients, spent)
        seeded = roster.seeded
        try:
            return agenda.look(AtSites(call, agenda, roster), rng, payer.pay, call.say, seeded=seeded)
        except Declined as declined:
            roster = roster.without(set(declined.sites))
            continue
        finally:
            call.release(roster)


def call_of(
    assignment: Mapping[str, Any],
    channel: Channel,
    tell: Callable[[str, int, str], None],
    heads: LedgerHeads | None = None,
) -> Call:
    """How sites are called, from what the coordinator sent."""
    keys = assignment["inspection"]
    model = keys["model"]
    content = base64.b64decode(model.get("onnx", ""))
    selections = {name: Selection.parse(table) for name, table in keys["selections"].items()}
    request = Request.from_toml(dict(assignment["request"]))
    schema = Schema.from_dict(dict(assignment["schema"]))
    return Call(
        channel,
        assignment["run"],
        Inspection(request, schema, selections, survey_share=keys["survey_share"]),
        ModelSource(hash_of(content) if content else "", model.get("entry_point", "")),
        content,
        assignment["minimum_sites"],
        Patience(timeout_s=assignment["round_s"], resend_s=max(5.0, assignment["round_s"] / 4)),
        tell,
        heads=heads or LedgerHeads(),
    )
