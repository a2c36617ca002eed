"""A site's policy: which runs it takes part in. It is never sent; what it refuses is."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from fedsynth.data.schema import Schema
from fedsynth.deploy.link.messages import Terms
from fedsynth.deploy.site.run import Refusal
from fedsynth.errors import nearest
from fedsynth.privacy.budget import Budget

_KEYS = "this site has no keys for it (fedsynth keys create, then [keys] folder in site.toml)"


@dataclass(frozen=True)
class SitePolicy:
    """The rules for the runs that a site takes part in. Never sent."""

    budget: Budget
    recipes: tuple[str, ...]
    transports: tuple[str, ...] = ("clear",)
    minimum_cohort: int = 2
    without_privacy: bool = False
    inspect: bool = False
    entry_points: tuple[str, ...] = ()  # installed models that inspections may name

    def agree(self, terms: Terms, schema: Schema, sealed: Container[str]) -> None:
        """Refuse a run that is not allowed here; `sealed` are the transports for which the site has keys."""
        if terms.recipe not in self.recipes:
            raise Refusal("policy", f"recipe={terms.recipe!r}: not allowed here; {_allowed(self.recipes)}")
        if terms.transport not in self.transports:
            raise Refusal(
                "policy", f"transport={terms.transport!r}: not allowed here; {_allowed(self.transports)}"
            )
        if terms.transport != "clear" and terms.transport not in sealed:
            raise Refusal("policy", f"transport={terms.transport!r}: not installed here: {_KEYS}")
        if not terms.private and not self.without_privacy:
            raise Refusal("policy", "a run without privacy is not allowed here")
        if terms.minimum_cohort < self.minimum_cohort:
            raise Refusal("policy", too_few(terms.minimum_cohort, self))
        difference = _difference(terms.schema, schema)
        if difference:
            raise Refusal("policy", f"the schema is not the one agreed to here: {difference}")


def too_few(sites: int, policy: SitePolicy) -> str:
    """The sentence for a run with fewer sites than the policy asks for."""
    return f"minimum_cohort={sites}: this site takes part only with {policy.minimum_cohort} sites or more"


def _allowed(names: tuple[str, ...]) -> str:
    return f"allowed: {', '.join(names) or 'none'}"


def _difference(asked: Mapping[str, Any], agreed: Schema) -> str:
    """Where two schemas differ in what they mean; who a client is and where bounds came from is each site's own."""
    own = agreed.with_client(None).to_dict()
    theirs = {name: value for name, value in asked.items() if name not in ("client", "provenance")}
    own.pop("provenance", None)
    for name in sorted({*own, *theirs}):
        if name != "columns" and _plain(own.get(name)) != _plain(theirs.get(name)):
            return f"{name} is {str(theirs.get(name))[:80]}, here it is {str(own.get(name))[:80]}"
    columns = _plain(own.get("columns", [])), _plain(theirs.get("columns", []))
    if columns[0] != columns[1]:
        names = [[str(c.get("name")) for c in json.loads(side)] for side in columns]
        odd = [c for c in names[1] if c not in names[0]]
        return f"column {odd[0]!r}: {nearest(odd[0], names[0])}" if odd else "its columns differ"
    return ""


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
