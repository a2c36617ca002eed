"""Language models under client-level DP: perplexity and next-word accuracy on users who took no part.

    python experiments/language/measure.py [ROW ...] [--seeds 0 3] [--device cuda] [--out FOLDER]
    python experiments/language/measure.py stackexchange --holdout --set learning_rate=6   # to choose settings

Rows are below. Users of the split "public" give the vocabulary (a row "paid" learns it from the clients instead), those
of "train" train, those of "test" are tested on; with --holdout a tenth of the training users is tested on instead.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from words import public_words

from fedsynth.assess.scores.reader import LanguageReader
from fedsynth.data.schema import Schema
from fedsynth.data.text import Text
from fedsynth.privacy.ledger import Ledger
from fedsynth.research.corpora import shakespeare, stack_exchange, tenth
from fedsynth.rng import Rng
from fedsynth.synthesis.paid_vocabulary import pay_for_vocabulary
from training import clients_of, pieces_by_user, train

HERE = Path(__file__).resolve().parent
READ = {"stackexchange": stack_exchange, "shakespeare": shakespeare}
DELTA = {"stackexchange": 1e-5, "shakespeare": 1e-4}
COMMON = {"clip": 1.0, "learning_rate": 6.0, "most_batches": 2}
MANY = {**COMMON, "rate": 0.1, "rounds": 200}
OPEN = {**MANY, "learning_rate": 3.0}  # nothing clips a step that is too long
FEW = {**COMMON, "rate": 0.3, "rounds": 10}
LAST = {"stackexchange_1": 20}  # rounds whose models' mean is taken; elsewhere the last one
PAID = 1.0  # epsilon of the vocabulary, where it is paid for; the rest of ten trains
ROWS = {
    "stackexchange_none": ("stackexchange", None, OPEN),
    "stackexchange_10": ("stackexchange", 10.0, MANY),
    "stackexchange_3": ("stackexchange", 3.0, MANY),
    "stackexchange_1": ("stackexchange", 1.0, {**MANY, "rate": 0.2, "rounds": 60}),
    "stackexchange_paid": ("stackexchange", 10.0, MANY),
    "shakespeare_none": ("shakespeare", None, {**FEW, "learning_rate": 3.0, "rounds": 60}),
    "shakespeare_10": ("shakespeare", 10.0, FEW),
}
WORDS, LENGTH = 1000, 20


def schema_of(row, data, frame):
    """The vocabulary, and how much of the budget it cost."""
    if not row.endswith("paid"):
        return Schema(kind="text", vocabulary=public_words(WORDS, READ[data]), length=LENGTH), 0.0
    ledger = Ledger(None)
    schema = pay_for_vocabulary(
        frame["text"].tolist(),
        frame["user"].to_numpy(),
        epsilon=PAID,
        delta=DELTA[data] / 10,
        most=WORDS,
        length=LENGTH,
        ledger=ledger,
        rng=Rng(1),
    )
    return schema, PAID


def users_of(data, holdout):
    """Texts to train on and to test on."""
    frame = READ[data]("train")
    if not holdout:
        return frame, READ[data]("test")
    held = np.array([tenth("hold-out " + user) == 0 for user in frame["user"]])
    return frame[~held], frame[held]


def few_of_each(frame, schema, most=200):
    """At most so many pieces of each user, so that no user decides a score."""
    return [piece for pieces in pieces_by_user(frame, schema) for piece in pieces[:most]]


def measure(row, options):
    """The scores of one row, a line for each seed."""
    data, epsilon, settings = ROWS[row]
    settings = {**settings, **options.settings}
    last = options.last or LAST.get(row, 1)
    known, unseen = users_of(data, options.holdout)
    schema, spent = schema_of(row, data, known)
    users = pieces_by_user(known, schema)
    clients = clients_of(users[: options.users], lambda texts: Text(schema).encode(texts)[0])
    tested = few_of_each(unseen, schema)
    for seed in range(*options.seeds):
        made = train(
            schema,
            clients,
            settings,
            epsilon=None if epsilon is None else epsilon - spent,
            delta=DELTA[data] * (0.9 if spent else 1.0),
            seed=seed,
            device=options.device,
            chunk=round(1.15 * float(settings["rate"]) * len(clients)) + 1,
            last=last,
        )
        reader = LanguageReader(made.generator)
        began = time.perf_counter()
        found, beside = reader.predict(tested), reader.beside([t for u in users for t in u], tested)
        yield {
            "row": row,
            "seed": seed,
            "data": data,
            "holdout": options.holdout,
            "epsilon": epsilon,
            "delta": None if epsilon is None else DELTA[data],
            "paid": spent,
            "clients": len(clients),
            "words": len(schema.vocabulary),
            "perplexity": found.perplexity,
            "accuracy": found.accuracy,
            "unigrams": [beside.perplexity, beside.accuracy],
            "noise": made.noise,
            "parameters": len(made.generator.parts["model"]),
            "seconds": made.seconds,
            "seconds_scoring": time.perf_counter() - began,
            "losses": [round(loss, 3) for loss in made.losses[:: max(1, len(made.losses) // 8)]],
            "settings": settings,
            "last": last,
            "sample": made.generator.sample(10, Rng(seed))["text"].tolist(),
            "device": options.device,
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", dest="pairs", nargs="*", default=(), metavar="NAME=VALUE")
    parser.add_argument("--last", type=int, help="the mean of so many last rounds' models")
    parser.add_argument("--users", type=int, default=None)
    parser.add_argument("--holdout", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.settings = dict(pair.split("=") for pair in options.pairs)
    options.out.mkdir(parents=True, exist_ok=True)
    for row in options.rows:
        lines = []
        for line in measure(row, options):
            lines.append(line)
            print(json.dumps({key: value for key, value in line.items() if key != "sample"}), flush=True)
            (options.out / f"{row}.{options.seeds[0]}.json").write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
