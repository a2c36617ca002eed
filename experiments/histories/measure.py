"""Histories at person-level epsilon: records with a known law, and RAND, by real private runs with the system's noise.

    python experiments/histories/measure.py law|rand|heart EPSILON [--runs 3] [--persons 20000]

`law`: persons, visits and measurements of fedsynth.research.hospital_records; distances are to as many fresh persons of
the same law. Beside them the same persons flattened (a visit with its person's columns is a row, `marginals`, rows
dealt to persons anew), children without any noise but independent of each other, and other real persons. `rand`:
whether somebody sees a doctor in the next year, learned from synthetic histories, tested on held-out people. `heart`:
persons with a single visit each, beside the same rows as one table by `marginals`.
"""

import argparse
import json
import platform
import resource
import time
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
from heart_visits import flat_rows, heart_visits
from heart_visits import linked as single_visits
from heart_visits import taught as taught_disease
from rand_years import rand_histories, taught

from fedsynth import Synthesizer, clients_from
from fedsynth.assess.scores import histories as scores
from fedsynth.data.linked import link
from fedsynth.data.linked_tables import Linked
from fedsynth.data.schema import Schema
from fedsynth.research.hospital_records import records, schema

RESULTS = Path(__file__).parent / "results"
MILLION = 1_000_000


def synthetic(
    frames: dict[str, pd.DataFrame], public: Schema, epsilon: float
) -> tuple[dict, Synthesizer, float]:
    """As many synthetic persons as there are real ones, by `histories`, and the seconds that it took."""
    began = time.perf_counter()
    raw = Linked(public).owned(frames)
    trained = Synthesizer("histories", public, epsilon=epsilon, delta=1e-6).fit(raw)
    drawn = trained.sample(len(frames["person"]))
    return drawn, trained, time.perf_counter() - began


def flattened(frames: dict[str, pd.DataFrame], epsilon: float, seed: int) -> dict[str, pd.DataFrame]:
    """Visits as rows of one table by `marginals`, each client's together; rows are dealt to as many persons."""
    person, visit = frames["person"], frames["visit"]
    days = pd.to_datetime(visit["discharge"]) - pd.to_datetime(visit["admission"])
    flat = (
        visit.drop(columns=["visit id", "discharge"]).assign(stay=days.dt.days).merge(person, on="person id")
    )
    tables = schema()["tables"]
    columns = [*tables["person"]["columns"], *tables["visit"]["columns"]]
    columns = [column for column in columns if column["name"] != "discharge"]
    columns.append({"name": "stay", "type": "integer", "min": 0, "max": 3652, "scale": "log"})
    public = Schema.from_dict({"version": 1, "kind": "table", "client": "person id", "columns": columns})
    trained = Synthesizer("marginals", public, epsilon=epsilon, delta=1e-6)
    trained.fit(clients_from(flat, client_column="person id"))
    rows = trained.sample(len(flat))
    dealt = np.random.default_rng(seed).permutation(visit["person id"].to_numpy())
    start = pd.to_datetime(rows["admission"])
    end = (start + pd.to_timedelta(rows["stay"].astype(int), unit="D")).clip(upper=pd.Timestamp("2024-12-31"))
    moments = {"admission": start.dt.strftime("%Y-%m-%d"), "discharge": end.dt.strftime("%Y-%m-%d")}
    visits = rows[["type", "diagnosis"]].assign(**moments, **{"person id": dealt})
    visits["visit id"] = np.arange(1, len(visits) + 1)
    empty = frames["measurement"].head(0)
    return {"person": person, "visit": visits, "measurement": empty}


def independent(frames: dict[str, pd.DataFrame], seed: int) -> dict[str, pd.DataFrame]:
    """The real visits, without any noise, each at a person by chance: children that do not know each other."""
    visit = frames["visit"].copy()
    visit["person id"] = np.random.default_rng(seed).permutation(visit["person id"].to_numpy())
    return {**frames, "visit": visit}


def distances(
    linked: Linked, frames: dict[str, pd.DataFrame], fresh: scores.Coded, seed: int
) -> dict[str, object]:
    """Every score of histories against fresh persons of the same law."""
    side = scores.Coded(linked.histories, link(linked.tables, frames))
    measured = {
        "children": scores.children(fresh, side),
        "steps": scores.steps(fresh, side),
        "gaps": scores.gaps(fresh, side),
        "order": scores.order_statistics(fresh, side),
        "relations": scores.relations(fresh, side),
        "told apart": scores.detection(fresh, side, seed),
        "soon again": scores.soon_again(side, fresh, "visit", seed),
    }
    return {
        name: {k: round(v, 4) for k, v in of.items()} if isinstance(of, dict) else round(of, 4)
        for name, of in measured.items()
    }


def violations(frames: dict[str, pd.DataFrame]) -> int:
    """Rows that break a key, an order or a constraint."""
    person, visit, measurement = (frames[name] for name in ("person", "visit", "measurement"))
    late = visit["discharge"].to_numpy() < visit["admission"].to_numpy()
    backwards = visit.groupby("person id")["admission"].diff().dt.days < 0
    lost = ~visit["person id"].isin(person["person id"])
    orphans = ~measurement["visit id"].isin(visit["visit id"])
    twice = visit["visit id"].duplicated().sum() + person["person id"].duplicated().sum()
    return int(late.sum() + backwards.sum() + lost.sum() + orphans.sum() + twice)


def law(epsilon: float, runs: int, persons: int) -> dict[str, object]:
    """All runs on records with a known law."""
    public = Schema.from_dict(schema())
    linked = Linked(public)
    frames = records(persons, seed=0)
    fresh = scores.Coded(linked.histories, link(linked.tables, records(persons, seed=99)))
    found: dict[str, object] = {"histories": [], "flattened": []}
    for run in range(runs):
        drawn, trained, seconds = synthetic(frames, public, epsilon)
        found["histories"].append({**distances(linked, drawn, fresh, run), "seconds": round(seconds, 1)})
        if run == 0:
            many = trained.sample(int(MILLION / 13) + 1)
            rows = sum(map(len, many.values()))
            found["violations"] = {"rows": rows, "broken": violations(many)}
        found["flattened"].append(distances(linked, flattened(frames, epsilon, run), fresh, run))
        print(json.dumps(found["histories"][-1]), json.dumps(found["flattened"][-1]), flush=True)
    found["independent children, no noise"] = distances(linked, independent(frames, 0), fresh, 0)
    found["other real persons"] = distances(linked, frames, fresh, 0)
    return {**found, "persons": persons, "rows": sum(map(len, frames.values()))}


def rand(epsilon: float, runs: int) -> dict[str, object]:
    """All runs on RAND."""
    train, test, written = rand_histories()
    public = Schema.from_dict(written)
    real = taught(train, test)
    aucs = []
    for run in range(runs):
        drawn, _, _ = synthetic(train, public, epsilon)
        aucs.append(
            round(
                taught(
                    {
                        name: frame.astype(train[name].dtypes.to_dict(), errors="ignore")
                        for name, frame in drawn.items()
                    },
                    test,
                    run,
                ),
                4,
            )
        )
        print(aucs[-1], flush=True)
    shares = [round((auc - 0.5) / (real - 0.5), 3) for auc in aucs]
    return {"real": round(real, 4), "auc": aucs, "taught": shares, "persons": len(train["person"])}


def heart(epsilon: float, runs: int) -> dict[str, object]:
    """All runs on heart disease as single visits, beside the same rows as one table."""
    train, test, flat, written = heart_visits()
    public, label = Schema.from_dict(written), str(flat.label)
    aucs: dict[str, list[float]] = {"histories": [], "one table, marginals": []}
    with_a_visit = []
    for run in range(runs):
        drawn, _, _ = synthetic(single_visits(train), public, epsilon)
        one_table = Synthesizer("marginals", flat, epsilon=epsilon, delta=1e-6)
        one_table.fit(clients_from(train.assign(person=np.arange(len(train))), client_column="person"))
        for name, rows in zip(aucs, (flat_rows(drawn), one_table.sample(len(train))), strict=True):
            aucs[name].append(round(taught_disease(rows, test, label, run), 4))
        with_a_visit.append(round(len(drawn["visit"]) / len(drawn["person"]), 4))
        print({name: of[-1] for name, of in aucs.items()}, with_a_visit[-1], flush=True)
    real = round(taught_disease(train, test, label), 4)
    return {"real": real, "auc": aucs, "persons with their visit": with_a_visit, "persons": len(train)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["law", "rand", "heart"])
    parser.add_argument("epsilon", type=float)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--persons", type=int, default=20_000)
    chosen = parser.parse_args()
    kinds = {"rand": rand, "heart": heart}
    result = (
        law(chosen.epsilon, chosen.runs, chosen.persons)
        if chosen.what == "law"
        else kinds[chosen.what](chosen.epsilon, chosen.runs)
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    about = {"what": chosen.what, "epsilon": chosen.epsilon, "delta": 1e-6, "memory_gib": round(memory, 2)}
    machine = {"machine": f"2 cores of {platform.machine()}", "date": date.today().isoformat()}
    RESULTS.mkdir(exist_ok=True)
    name = f"{chosen.what}-{chosen.epsilon:g}" + (f"-{chosen.persons}" if chosen.what == "law" else "")
    (RESULTS / f"{name}.json").write_text(json.dumps({**about, **machine, **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
