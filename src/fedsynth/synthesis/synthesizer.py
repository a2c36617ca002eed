"""fit, sample, save, load: the whole of fedsynth in the habit of SDV and scikit-learn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd

from fedsynth.data.clients import Clients, RawClients, clients_in, encode_clients
from fedsynth.data.modality import Data, modality_of
from fedsynth.data.notebook import card
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, NotPrivate, nearest, speaks_python
from fedsynth.federation.state import ServerState
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import Statement
from fedsynth.privacy.wording import shown
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.forecast import Forecast, forecast
from fedsynth.synthesis.generator import Generator
from fedsynth.synthesis.inputs import source_of
from fedsynth.synthesis.payer import BudgetPolicy, Payer, check_payer, ledger_of
from fedsynth.synthesis.release import caveats_of, release, write_result
from fedsynth.synthesis.released_files import checked_run
from fedsynth.synthesis.request import AUTO, Request
from fedsynth.synthesis.training import Prepared, Training, Watch, prepare, resumed

_SAMPLED = {"num_rows": "rows", "n": "rows", "conditions": "condition", "random_state": "seed"}


class Synthesizer:
    """Trains a recipe over clients and samples synthetic data from what was released.

    `schema` is a `Schema` or the path of a schema.json. Without `recipe` one is chosen from public facts.

    >>> schema = Schema.from_dict({"version": 1, "kind": "table", "label": "ill", "columns": [
    ...     {"name": "age", "type": "integer", "min": 0, "max": 99},
    ...     {"name": "ill", "type": "binary", "categories": ["no", "yes"]}]})
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [30, 40, 50, 60] * 50, "ill": ["no", "yes"] * 100})
    >>> synthesizer = Synthesizer(schema=schema, epsilon=1, rounds=2, seed=1)  # a seed: no privacy, for tests
    >>> synthesizer
    Synthesizer('marginals', a table of 2 columns, epsilon=1, delta=1e-06, seed=1): not fitted
    >>> rows = synthesizer.fit(frame).sample(3)
    >>> list(rows.columns), len(rows)
    (['age', 'ill'], 3)
    """

    @speaks_python
    def __init__(
        self,
        recipe: str = AUTO,
        schema: Schema | Path | str | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rounds: int | None = None,
        noise_multiplier: float | None = None,
        private: bool = True,
        unit: str | None = None,
        trust: str | None = None,
        transport: str | None = None,
        seed: int | None = None,
        device: str = "cpu",
        matmul: str | None = None,
        accept: tuple[str, ...] = (),
        chunk: int | None = None,
        **arguments: Any,
    ) -> None:
        """`arguments` are the recipe's own (`fedsynth recipes`); `chunk`, `device` and `matmul` change speed alone."""
        if schema is None:
            raise BadInput(
                "schema: a Synthesizer needs a public schema: schema=Schema.load('schema.json') or schema='schema.json'"
            )
        schema = Schema.load(schema) if isinstance(schema, Path | str) else schema
        self.schema = schema
        _check_keywords(
            Request(recipe, private=False, unit=unit, trust=trust).resolved(schema).recipe, arguments
        )
        self.request = Request(
            recipe=recipe,
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            noise_multiplier=noise_multiplier,
            private=private,
            unit=unit,
            trust=trust,
            transport=transport,
            seed=seed,
            device=device,
            matmul=matmul,
            accept=accept,
            arguments=arguments,
        ).resolved(schema)
        self.history: list[dict[str, Any]] = []
        self.notes: list[str] = []  # why training ended early, if it did
        self._chunk = chunk
        self._generator: Generator | None = None
        self._statement: Statement | None = None
        self._ledger = Ledger(None)

    @classmethod
    def of(cls, request: Request, schema: Schema) -> Synthesizer:
        """A synthesizer for a request, as the command line makes it."""
        new = cls.__new__(cls)
        new.schema, new.request, new.history, new.notes = schema, request.resolved(schema), [], []
        new._chunk, new._generator, new._statement, new._ledger = None, None, None, Ledger(None)
        return new

    def __repr__(self) -> str:
        request = self.request
        names = ("epsilon", "delta", "unit", "trust", "seed") if request.private else ("private", "seed")
        settings = {name: getattr(request, name) for name in names if getattr(request, name) is not None}
        listed = [f"{name}={value!r}" for name, value in settings.items()]
        described = ", ".join([repr(request.recipe), modality_of(self.schema).describe(), *listed])
        return f"Synthesizer({described}): {self._state()}"

    def _repr_html_(self) -> str:
        facts = {
            "recipe": self.request.recipe,
            "data": modality_of(self.schema).describe(),
            "state": self._state(),
        }
        return card("Synthesizer", facts, "" if self._statement is None else str(self._statement))

    def _state(self) -> str:
        known = self._statement
        if known is None:
            return "not fitted"
        if known.epsilon is None:
            return "fitted; simulation: no privacy" if known.simulation else "fitted; no privacy"
        return f"fitted; each {known.unit} has epsilon {shown(known.epsilon)} at delta {known.delta:g}"

    @speaks_python
    def fit(
        self,
        data: Data,
        *,
        client_column: str | None = None,
        clients: int | None = None,
        split: str | None = None,
        text_column: str | None = None,
        folder: Path | str | None = None,
        watch: Watch | None = None,
        note: Callable[[str], None] | None = None,
    ) -> Synthesizer:
        """Train on data; with `folder` everything is written there and a stopped run can be resumed.

        `data` is a table (a DataFrame), a pair of images and labels, linked tables by name, the path of a file or
        folder, a list with one of these for each site, or what `clients_from` returns. `client_column` names the owner
        of each row; by default it is the schema's. Without any, each row is a client of its own, and each site of a
        list is one client; with `clients`, rows are dealt to so many simulated ones by `split` (uniform).

        `watch` is called after each round, `note` with what the run will take.
        Only once: a second fit would spend again, and no statement would count both.
        """
        self._refuse_second_fit()
        place = None if folder is None else Folder(folder)
        if place:
            place.refuse_existing()
        self._note_owners(data, client_column, clients, split, text_column)
        encoded = self._encoded(data)
        fingerprint = encoded.fingerprint() if place else ""
        rng = Rng(self.request.seed)
        self._ledger = Ledger(None)
        payer = self._payer(place)
        earlier = ledger_of(self.schema, self.request.schema)
        if earlier is not None and self.schema.feature_columns:
            unit, _ = recipe_named(self.request.recipe).protection(self.request.unit, self.request.trust)
            check_payer(self.schema, encoded.client_column, unit)
        prepared = prepare(self.request, self.schema, encoded, rng, payer, earlier)
        self.request = replace(self.request, arguments=prepared.values)
        expected = self._forecast(prepared, place, rng) if place else None
        with nullcontext() if place is None else place.owned(begun=False):
            if place:
                paid, self._ledger = self._ledger, Ledger(place.ledger)
                self._ledger.adopt(paid)  # durable before recipe.toml tells the number of records
                place.create(self.request.to_toml(), self.schema)
                place.same_data(fingerprint)
                payer = self._payer(place)
            if note and expected:
                note(f"this run will take {expected}")
            if note and (warning := prepared.doubt()):
                note(warning)
            training = Training(prepared, place, payer, rng, watch, self._chunk)
            return self._finish(prepared, training, training.start(), place)

    def _note_owners(
        self,
        data: Data,
        client_column: str | None,
        clients: int | None,
        split: str | None,
        text_column: str | None,
    ) -> None:
        """Write into the request whose the rows of `data` are, so that a run in a folder can be resumed."""
        if isinstance(data, RawClients):
            if client_column is not None or clients is not None:
                raise BadInput(
                    "client_column= and clients=: clients_from was told whose the rows are; leave them out"
                )
            return
        if client_column is not None and clients is not None:
            raise BadInput("client_column= and clients=: both say whose the rows are; choose one of them")
        path = str(data) if isinstance(data, Path | str) else None
        self.request = self.request.changed(
            data=path, client_column=client_column, clients=clients, split=split, text_column=text_column
        )
        request = self.request
        if (
            request.clients is not None and request.split_seed is None
        ):  # a resumed run must deal the same rows
            split_seed = Rng().integer() if request.seed is None else request.seed
            self.request = request.changed(split_seed=split_seed)
        if client_column is not None:
            self.schema = self.schema.with_client(client_column)

    def _encoded(self, data: Data) -> Clients:
        source = source_of(self.request, self.schema)
        return encode_clients(clients_in(data, source, self.schema), self.schema)

    def _forecast(self, prepared: Prepared, place: Folder, rng: Rng) -> Forecast | None:
        assert prepared.clients is not None
        expected = forecast(prepared.algorithm, prepared.clients.blank(), self.request.device, rng)
        if expected and "cost" not in self.request.accept:
            expected.refuse_absurd(place.path, self.request.recipe)
        return expected

    def _refuse_second_fit(self) -> None:
        releases = len(self._ledger.releases())
        if releases:
            raise NotPrivate(
                f"fit: this synthesizer made {releases} releases already, and a second fit would spend epsilon again; "
                "use sample for more rows, or make a new Synthesizer, whose statement counts its own releases alone"
            )

    @speaks_python
    def resume(self, data: Data, folder: Path | str, *, watch: Watch | None = None) -> Synthesizer:
        """Go on with a run that was stopped; under a seed the result is that of a run that was not."""
        place = Folder(folder)
        encoded = self._encoded(data)
        fingerprint = encoded.fingerprint()
        with place.owned(begun=True):
            rng = Rng(self.request.seed)
            self._ledger = Ledger(place.ledger)
            place.same_data(fingerprint)
            prepared = resumed(self.request, self.schema, encoded)
            training = Training(prepared, place, self._payer(place), rng, watch, self._chunk)
            return self._finish(prepared, training, training.resume(), place)

    def _payer(self, place: Folder | None) -> Payer:
        name = place.path.name if place else "memory"
        return Payer(
            self._ledger, name, BudgetPolicy.load(self.request.budget) if self.request.budget else None
        )

    def _finish(
        self,
        prepared: Prepared,
        training: Training,
        state: ServerState,
        place: Folder | None,
    ) -> Synthesizer:
        self._generator, self._statement = release(
            prepared, self._ledger, state, seeded=self.request.seed is not None, caveats=caveats_of(prepared)
        )
        self.history, self.notes = training.history, training.notes
        if place:
            write_result(place, self.generator, self.privacy)
        return self

    @speaks_python
    def sample(
        self,
        rows: int | None = None,
        *,
        condition: Mapping[str, Any] | Iterable[str] | None = None,
        seed: int | None = None,
        client_ids: bool = False,
        **unknown: Any,
    ) -> Data:
        """Synthetic rows (or images and labels); as many as you like, at no further privacy cost.

        `condition` fixes columns to values ({"sex": "F"}), or is a list of texts (["sex=F", "age>=30"]).
        `client_ids` adds the client column: ids with as many rows as clients had (`marginals`).
        """
        for name in unknown:
            meant = (
                f"use {_SAMPLED[name]}="
                if name in _SAMPLED
                else nearest(name, ("rows", "condition", "seed", "client_ids"))
            )
            raise BadInput(f"{name}: sample has no such argument; {meant}")
        if not isinstance(rows, Integral):
            raise BadInput(f"rows={rows!r}: say how many, for example sample(1000)")
        if not client_ids:
            return self.generator.sample(rows, Rng(seed), condition)
        owners = pd.Series(self.generator.owners(rows, Rng(seed)), name=self.schema.client or "client")
        return pd.concat([owners, self.generator.sample(rows, Rng(seed), condition)], axis=1)

    def stream(
        self,
        rows: int,
        *,
        condition: Mapping[str, Any] | Iterable[str] | None = None,
        seed: int | None = None,
        client_ids: bool = False,
    ) -> Iterator[Data]:
        """The rows of `sample`, in parts that follow one another: any number of rows takes the memory of few."""
        if client_ids:
            yield self.sample(rows, condition=condition, seed=seed, client_ids=True)
        else:
            yield from self.generator.stream(rows, Rng(seed), condition)

    @property
    def generator(self) -> Generator:
        """The released generator."""
        if self._generator is None:
            raise BadInput("this synthesizer is not trained; call fit first, or load a run")
        return self._generator

    @property
    def privacy(self) -> Statement:
        """The privacy statement of what was released."""
        if self._statement is None:
            raise BadInput("this synthesizer is not trained; call fit first, or load a run")
        return self._statement

    @speaks_python
    def save(self, path: Path | str) -> None:
        """Write recipe, schema, ledger, statement and generator to a new folder."""
        generator, statement = self.generator, self.privacy  # refused before anything is written
        place = Folder(path)
        place.refuse_existing()
        place.create(self.request.to_toml(), self.schema)
        Ledger(place.ledger).adopt(self._ledger)
        for line in self.history:
            place.append_history(line)
        write_result(place, generator, statement)

    @classmethod
    @speaks_python
    def load(cls, path: Path | str) -> Synthesizer:
        """Read a finished run; refused if its files are not those that it released (see `checked_run`)."""
        run = checked_run(path)
        new = cls.of(run.request, run.schema)
        values = recipe_named(run.request.recipe).values(run.request.arguments)
        new._generator = Generator.load(run.folder.generator, run.schema, run.request.recipe, values)
        new._statement = run.statement
        new._ledger = run.ledger
        new.history = run.folder.read_history()
        return new


def _check_keywords(recipe: str, arguments: Mapping[str, Any]) -> None:
    """Refuse a keyword that neither the Synthesizer nor the recipe knows, with the nearest name of either."""
    own = [
        name
        for name in inspect.signature(Synthesizer.__init__).parameters
        if name not in ("self", "arguments")
    ]
    known = sorted({*own, *recipe_named(recipe).arguments()})
    for name in arguments:
        if name not in known:
            raise BadInput(
                f"{name}: neither Synthesizer nor {recipe} has such an argument; {nearest(name, known)}"
            )
    recipe_named(recipe).values(arguments)
