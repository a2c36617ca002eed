"""Exposure of sentences that one user each wrote 1, 10 or 100 times (Carlini et al. 2019), with and without DP.

    python experiments/language/canaries.py [--seeds 0 3] [--epsilons none 10 1] [--device cuda] [--out FOLDER]

`USERS` users train a word model; in the posts of thirty of them a canary is planted, a fixed frame with three random
words. Canaries that nobody wrote tell what luck gives. Every canary is ranked among all 27,000 ways to fill the frame.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from words import public_words

from fedsynth.assess.scores.reader import LanguageReader
from fedsynth.data.schema import Schema
from fedsynth.data.text import Text
from fedsynth.research.corpora import stack_exchange
from fedsynth.research.exposure import Frame, exposures
from fedsynth.rng import Rng
from training import MOST_ROWS, clients_of, pieces_by_user, train

HERE = Path(__file__).resolve().parent
USERS, EACH = 300, 10
REPEATS = (0, 1, 10, 100)
WORDS, LENGTH = 1000, 12
GAPS = slice(200, 230)  # ranks of the words that fill gaps
SETTINGS = {"rounds": 150, "rate": 0.2, "clip": 1.0, "learning_rate": 3.0, "most_batches": 2}


def planted(users, frame, rng):
    """The users' pieces with canaries in some of them, and the canaries by how often they were written."""
    texts = frame.draw(3 * EACH * len(REPEATS), rng)
    fresh = list(dict.fromkeys(texts))[: EACH * len(REPEATS)]
    by_repeats = {times: fresh[n * EACH : (n + 1) * EACH] for n, times in enumerate(REPEATS)}
    made = [list(pieces) for pieces in users]
    place = 0
    for times, canaries in by_repeats.items():
        for canary in canaries:
            if times:
                made[place] = [*made[place][: MOST_ROWS - times], *[canary] * times]
                place += 1
    return made, by_repeats


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1))
    parser.add_argument("--epsilons", nargs="+", default=("none", "10", "1"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", dest="pairs", nargs="*", default=(), metavar="NAME=VALUE")
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--name", default="canaries")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    settings = {**SETTINGS, **dict(pair.split("=") for pair in options.pairs)}
    schema = Schema(kind="text", vocabulary=public_words(WORDS), length=LENGTH)
    frame = Frame("i think that the answer is {} {} {}", schema.vocabulary[GAPS])
    users = sorted(
        pieces_by_user(stack_exchange("train"), schema), key=lambda rows: (len(rows) < 20, len(rows))
    )
    users = users[: options.users]
    held = stack_exchange("test")["text"].tolist()[:300]
    options.out.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in range(*options.seeds):
        rows, canaries = planted(users, frame, Rng(seed).at("canaries"))
        clients = clients_of(rows, lambda texts: Text(schema).encode(texts)[0])
        for word in options.epsilons:
            epsilon = None if word == "none" else float(word)
            made = train(
                schema,
                clients,
                settings,
                epsilon=epsilon,
                delta=1e-4,
                seed=seed,
                device=options.device,
                chunk=128,
            )
            reader = LanguageReader(made.generator)
            told = reader.predict(held)
            everything = [text for texts in canaries.values() for text in texts]
            measured = exposures(reader.surprise, frame, everything, Rng(seed).at("exposure"))
            by_text = {one.canary: one for one in measured}
            line = {
                "seed": seed,
                "epsilon": epsilon,
                "delta": 1e-4,
                "noise": made.noise,
                "perplexity": told.perplexity,
                "accuracy": told.accuracy,
                "unigrams": reader.beside([text for pieces in users for text in pieces], held).perplexity,
                "highest": measured[0].highest,
                "by_rank": {t: [by_text[text].by_rank for text in texts] for t, texts in canaries.items()},
                "by_curve": {t: [by_text[text].by_curve for text in texts] for t, texts in canaries.items()},
                "settings": settings,
                "users": len(clients),
                "seconds": made.seconds,
            }
            found.append(line)
            means = {times: round(float(np.mean(values)), 2) for times, values in line["by_rank"].items()}
            print(
                word,
                seed,
                means,
                round(told.perplexity, 1),
                round(line["unigrams"], 1),
                made.seconds,
                flush=True,
            )
            (options.out / f"{options.name}.{options.seeds[0]}.json").write_text(
                json.dumps(found, indent=1) + "\n"
            )


if __name__ == "__main__":
    main()
