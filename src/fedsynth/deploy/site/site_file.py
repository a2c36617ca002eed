"""site.toml: what a site holds and what it takes part in. It stays at the site; nothing of it is ever sent.

```toml
[data]
file = "patients.parquet"       # or a folder, or a TOML file that names a database: docs/data-sources.md
schema = "schema.json"          # the public schema that this site agrees to; what these rows paid for it counts
client_column = "patient id"    # who owns a row; without it the site as a whole is one client
# text_column = "post"          # of texts: where they are; "text" if left out
[budget]
epsilon = 3.0                   # over all runs ever
delta = 1e-6
unit = "client"
adjacency = "add-remove"        # neighbors under which every release is charged; this one if left out
[policy]
recipes = ["dpd_fvae"]
transports = ["clear"]
minimum_cohort = 3              # sites that must take part
inspect = true                  # whether `fedsynth inspect` may train on rows that meet a criterion; usually not
entry_points = ["triage"]       # models installed here that an inspection may name
[state]
folder = "fedsynth-state"       # private parts, secrets, ledger, audit log: back it up
[keys]
folder = "keys/this-site"       # from fedsynth keys create: needed for the transports secagg and he
[metrics]
port = 9464                     # of 127.0.0.1, for Prometheus; without it there is none
```
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedsynth.data.clients import encode_clients
from fedsynth.data.configuration import Key, build, check, keys_of, read_file
from fedsynth.data.modality import Source, modality_of
from fedsynth.data.schema import Schema
from fedsynth.deploy.link.masked import masking
from fedsynth.deploy.link.sealed import sealing
from fedsynth.deploy.participation import compose
from fedsynth.deploy.site.look import Look
from fedsynth.deploy.site.run import Seal
from fedsynth.deploy.site.site import Holding, Site, SitePolicy
from fedsynth.deploy.software import difference
from fedsynth.errors import BadInput, nearest
from fedsynth.privacy.budget import Budget
from fedsynth.recipes.registry import recipe_named
from fedsynth.synthesis.payer import BudgetPolicy, check_payer, ledger_of
from fedsynth.transport.he_scheme import Keys
from fedsynth.transport.keys import IDENTITIES, IDENTITY, SECRET, load_identities, load_identity, load_keys
from fedsynth.transport.registry import TRANSPORTS

_DATA = {"file": Key(str, True), "schema": Key(str, True)}
_KEYS = {
    "data": Key(_DATA | dict.fromkeys(("client_column", "label", "text_column"), Key(str)), True),
    "budget": Key({name: key for name, key in keys_of(Budget).items() if name != "accountant"}, True),
    "policy": Key({name: key for name, key in keys_of(SitePolicy).items() if name != "budget"}, True),
    "state": Key({"folder": Key(str, True)}, True),
    "keys": Key({"folder": Key(str)}),
    "compute": Key({"device": Key(str)}),
    "metrics": Key({"port": Key(int)}),
    "test": Key({"seed": Key(int)}),
}


@dataclass(frozen=True)
class SiteFile:
    """A site.toml that was read and checked, but for the rows."""

    path: Path
    keys: Mapping[str, Mapping[str, Any]]
    schema: Schema
    policy: SitePolicy

    @classmethod
    def load(cls, path: Path | str) -> SiteFile:
        """Read site.toml; every mistake in it is reported at once."""
        path = Path(path).resolve()
        keys = read_file(path)
        check(keys, _KEYS, path)
        place = path.parent / keys["data"]["schema"]
        schema = Schema.load(place)
        ledger_of(schema, place)  # refused if rows paid for it and nobody knows how much
        policy = _policy(path, keys)
        check_payer(schema, keys["data"].get("client_column"), policy.budget.unit)
        if "label" in keys["data"]:
            schema = schema.with_label(keys["data"]["label"])
        return cls(path, keys, schema, policy)

    @property
    def data(self) -> Path:
        """The file or folder of rows."""
        return self.path.parent / self.keys["data"]["file"]

    @property
    def folder(self) -> Path:
        """Where the site keeps its state."""
        return self.path.parent / self.keys["state"]["folder"]

    @property
    def metrics_port(self) -> int | None:
        """The port of 127.0.0.1 on which the running site shows its metrics, if any."""
        port: int | None = self.keys.get("metrics", {}).get("port")
        if port is not None and not 1 <= port <= 65535:
            raise BadInput(f"{self.path}: [metrics] port={port}: expected a port between 1 and 65535")
        return port

    def check_state(self) -> None:
        """Refuse a state folder that others may enter: it holds patients' private parts."""
        if self.folder.exists() and self.folder.stat().st_mode & 0o077:
            raise BadInput(
                f"{self.folder}: other users may enter the state folder; run chmod -R go-rwx {self.folder}"
            )

    def holding(self) -> Holding:
        """Read and encode the rows; an error names the column and the value that do not fit the schema."""
        if not self.data.exists():
            raise BadInput(f"{self.path}: [data] file: {self.data} does not exist; check the path")
        column = self.keys["data"].get("client_column")
        modality, texts = modality_of(self.schema), self.keys["data"].get("text_column", "text")
        raw = modality.clients(Source(self.data, column, text_column=texts, alone=column is None))
        raw = replace(raw, data=modality.conform(raw.data))
        schema = self.schema.with_client(column) if column else self.schema
        kept = raw if self.policy.inspect else None
        return Holding(encode_clients(raw, schema), tuple(raw.names), self.schema, kept)

    def site(self, look: Callable[[Holding, SitePolicy], Look] | None = None) -> Site:
        """The site, ready to answer; `look` makes its part in inspections."""
        self.check_state()
        seed = self.keys.get("test", {}).get("seed")
        device = self.keys.get("compute", {}).get("device", "cpu")
        made, holding = partial(compose, keys=self.he_keys()), self.holding()
        seals = self.seals(len(holding.clients))
        looking = None if look is None else look(holding, self.policy)
        site = Site(
            holding,
            self.policy,
            self.folder,
            made,
            seed=seed,
            device=device,
            seals=seals,
            look=looking,
            differs=difference,
        )
        paid = ledger_of(self.schema, self.path.parent / self.keys["data"]["schema"])
        if paid is not None:
            BudgetPolicy(self.policy.budget, site.ledger).count(paid)
        return site

    @property
    def _keys_folder(self) -> Path | None:
        place = self.keys.get("keys", {}).get("folder")
        return None if place is None else self.path.parent / place

    def he_keys(self) -> Keys | None:
        """The secret key with which this site seals and opens, if it was given one."""
        folder = self._keys_folder
        return load_keys(folder / SECRET) if folder and (folder / SECRET).is_file() else None

    def seals(self, clients: int) -> dict[str, Seal]:
        """The seals by which this site can hide the messages of so many clients, with the keys that it was given."""
        folder = self._keys_folder
        if folder is None:
            return {}
        name, identity = load_identity(folder / IDENTITY)
        known = load_identities(folder / IDENTITIES)
        minimum = max(2, self.policy.minimum_cohort)
        seals: dict[str, Seal] = {"secagg": masking(name, identity, known, minimum, clients)}
        if (keys := self.he_keys()) is not None:
            seals["he" if keys.parameters.scheme == "bfv" else "he-ckks"] = sealing(minimum)
        return seals


def _policy(path: Path, keys: Mapping[str, Mapping[str, Any]]) -> SitePolicy:
    try:
        policy = build(SitePolicy, keys["policy"], budget=build(Budget, keys["budget"]))
        for name in policy.recipes:
            recipe_named(name)
        for name in policy.transports:
            if name not in TRANSPORTS:
                raise BadInput(f"[policy] transports: {name!r} is unknown; {nearest(name, TRANSPORTS)}")
        if policy.minimum_cohort < 1:
            raise BadInput(f"[policy] minimum_cohort={policy.minimum_cohort}: expected at least 1")
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    return policy
