"""fit, sample, save, load: the whole of fedsynth in the habit of SDV and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedsynth.data.clients import RawClients, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, NotPrivate
from fedsynth.federation.state import ServerState
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import Statement
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.forecast import Forecast, forecast
from fedsynth.synthesis.generator import Generator, Images
from fedsynth.synthesis.payer import Payer, Policy, check_payer, ledger_of
from fedsynth.synthesis.release import caveats_of, release
from fedsynth.synthesis.released_files import checked_run, write_result
from fedsynth.synthesis.request import AUTO, Request
from fedsynth.synthesis.training import Prepared, Training, Watch, prepare, resumed


class Synthesizer:
    """Trains a recipe over clients and samples synthetic data from what was released.

    >>> schema = Schema.from_dict({"version": 1, "kind": "table", "label": "ill", "columns": [
    ...     {"name": "age", "type": "integer", "min": 0, "max": 99},
    ...     {"name": "ill", "type": "binary", "categories": ["no", "yes"]}]})
    >>> frame = pd.DataFrame({"age": [30, 40, 50, 60] * 50, "ill": ["no", "yes"] * 100})
    >>> from fedsynth.data.clients import clients_from
    >>> synthesizer = Synthesizer("dpd_fvae", schema, epsilon=8, delta=1e-3, rounds=2, seed=1)
    >>> rows = synthesizer.fit(clients_from(frame, clients=50, rng=Rng(1))).sample(3)
    >>> list(rows.columns), len(rows)
    (['age', 'ill'], 3)
    """

    def __init__(
        self,
        recipe: str = AUTO,
        schema: Schema | None = None,
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
        accept: tuple[str, ...] = (),
        chunk: int | None = None,
        **arguments: Any,
    ) -> None:
        """`arguments` are the recipe's own (see `fedsynth recipes`); `chunk` and `device` change speed alone."""
        if schema is None:
            raise BadInput(
                "schema: a Synthesizer needs a public schema; load one with Schema.load('schema.json')"
            )
        self.schema = schema
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

    def fit(
        self,
        clients: RawClients,
        *,
        folder: Path | str | None = None,
        watch: Watch | None = None,
        note: Callable[[str], None] | None = None,
    ) -> Synthesizer:
        """Train over the clients; with `folder` everything is written there and a stopped run can be resumed.

        `watch` is called after each round, `note` with what the run will take.
        Only once: a second fit would spend again, and no statement would count both.
        """
        self._refuse_second_fit()
        place = None if folder is None else Folder(folder)
        if place:
            place.refuse_existing()
        encoded = encode_clients(clients, self.schema)
        rng = Rng(self.request.seed)
        self._ledger = Ledger(None)
        payer = self._payer(place)
        earlier = ledger_of(self.schema, self.request.schema)
        if earlier is not None and clients.frame is not None:
            unit, _ = recipe_named(self.request.recipe).protection(self.request.unit, self.request.trust)
            check_payer(self.schema, clients.client_column, unit)
        prepared = prepare(self.request, self.schema, encoded, rng, payer, earlier)
        self.request = replace(self.request, arguments=prepared.values)
        expected = self._forecast(prepared, place, rng) if place else None
        with nullcontext() if place is None else place.owned(begun=False):
            if place:
                paid, self._ledger = self._ledger, Ledger(place.ledger)
                self._ledger.adopt(paid)  # durable before recipe.toml tells the number of records
                place.create(self.request.to_toml(), self.schema)
                place.same_data(encoded.fingerprint())
                payer = self._payer(place)
            if note and expected:
                note(f"this run will take {expected}")
            training = Training(prepared, place, payer, rng, watch, self._chunk)
            return self._finish(prepared, training, training.start(), place, caveats_of(prepared, clients))

    def _forecast(self, prepared: Prepared, place: Folder, rng: Rng) -> Forecast | None:
        expected = forecast(prepared, rng)
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

    def resume(self, clients: RawClients, folder: Path | str, *, watch: Watch | None = None) -> Synthesizer:
        """Go on with a run that was stopped; under a seed the result is that of a run that was not."""
        place = Folder(folder)
        with place.owned(begun=True):
            encoded = encode_clients(clients, self.schema)
            rng = Rng(self.request.seed)
            self._ledger = Ledger(place.ledger)
            place.same_data(encoded.fingerprint())
            prepared = resumed(self.request, self.schema, encoded)
            training = Training(prepared, place, self._payer(place), rng, watch, self._chunk)
            return self._finish(prepared, training, training.resume(), place, caveats_of(prepared, clients))

    def _payer(self, place: Folder | None) -> Payer:
        name = place.path.name if place else "memory"
        return Payer(self._ledger, name, Policy.load(self.request.budget) if self.request.budget else None)

    def _finish(
        self,
        prepared: Prepared,
        training: Training,
        state: ServerState,
        place: Folder | None,
        caveats: tuple[str, ...],
    ) -> Synthesizer:
        self._generator, self._statement = release(
            prepared, self._ledger, state, seeded=self.request.seed is not None, caveats=caveats
        )
        self.history, self.notes = training.history, training.notes
        if place:
            write_result(place, self._generator, self._statement)
        return self

    def sample(
        self,
        rows: int,
        *,
        condition: Mapping[str, Any] | Iterable[str] | None = None,
        seed: int | None = None,
    ) -> pd.DataFrame | Images:
        """Synthetic rows (or images and labels); as many as you like, at no further privacy cost.

        `condition` fixes columns to values ({"sex": "F"}), or is a list of texts (["sex=F", "age>=30"]).
        """
        return self.generator.sample(rows, Rng(seed), condition)

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

    def save(self, path: Path | str) -> None:
        """Write recipe, schema, ledger, statement and generator to a new folder."""
        place = Folder(path)
        place.refuse_existing()
        place.create(self.request.to_toml(), self.schema)
        Ledger(place.ledger).adopt(self._ledger)
        for line in self.history:
            place.append_history(line)
        write_result(place, self.generator, self.privacy)

    @classmethod
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
