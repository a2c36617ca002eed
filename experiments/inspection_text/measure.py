"""Can a bug be found in texts that nobody may read: unknown words by position, then the spelling of unknown words.

    python experiments/inspection_text/measure.py words [--seeds 0 20] [--shares 0 .01 .1 1] [--out FOLDER]
    python experiments/inspection_text/measure.py letters [--seeds 0 3] ...

Words: for each seed one model is trained before and one after the first two tokens of a share of all sentences were
joined; their noise is calibrated together to `--epsilon`. Letters: where the words pointed to the first position, one
model spells the unknown first words; its noise is such that it and both models of words cost epsilon 10 in one account.
`letters --all` is the paper's model of all unknown words instead, with epsilon 10 for itself. `--quick` is a trial.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from bug import beginnings, encode_words, sentences_by_user, unknown_words, with_bug

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "language"))
from words import public_words

from fedsynth.data.schema import Schema
from fedsynth.data.text import Text
from fedsynth.inspection.text import Speaker, unknown_by_position
from fedsynth.privacy import account
from fedsynth.research.corpora import stack_exchange
from fedsynth.research.word_shift import first_word_shift, unlisted_words
from fedsynth.rng import Rng
from training import clients_of, cost_of, noise_for, train

HERE = Path(__file__).resolve().parent
DELTA = 1e-5
WORDS, LENGTH = 1000, 8  # known words, and tokens of a sentence that the word model reads
LISTED, LETTERS = 5000, 16  # known words and most bytes of an unknown one, for the model of letters
WORDS_COST, ALL_COST = 5.0, 10.0  # epsilon of the two models of words, and of these and the model of letters
WORD_SETTINGS = {"rounds": 40, "rate": 0.1, "clip": 1.0, "learning_rate": 8.0, "most_batches": 1}
LETTER_SETTINGS = {"rounds": 400, "rate": 0.2, "clip": 1.0, "learning_rate": 2.0, "most_batches": 1}
LAST = 100  # rounds whose models' mean is the model of letters


class Texts:
    """Everybody but the users of the public corpus."""

    def __init__(self, splits=("train", "test"), users=0):
        found = sentences_by_user(pd.concat([stack_exchange(split) for split in splits]))
        self.users = found[:users] if users else found

    def words(self, schema, share, seed):
        rows = beginnings(with_bug(self.users, share, seed), LENGTH)
        return clients_of(rows, lambda pieces: encode_words(pieces, schema))

    def letters(self, schema, known, share, seed, first):
        rows = unknown_words(with_bug(self.users, share, seed), known, first)
        return clients_of(rows, lambda texts: Text(schema).encode(texts)[0])


def real_rates(clients, positions=8):
    """The share of unknown words by position in the texts themselves, which nobody would see."""
    rows = clients.x[:, 1 : positions + 1]
    return [float((rows[:, at] == 2).sum() / (rows[:, at] != 0).sum()) for at in range(rows.shape[1])]


def measure_words(texts, options):
    schema = Schema(kind="text", vocabulary=public_words(WORDS), length=LENGTH)
    settings = {**WORD_SETTINGS, **options.settings}
    known = {
        "epsilon": options.epsilon,
        "delta": DELTA,
        "models": 2,
        "device": options.device,
        "chunk": options.chunk,
    }
    plain = texts.words(schema, 0, 0)
    for seed in range(*options.seeds):
        earlier = train(schema, plain, settings, seed=2 * seed, **known)
        before = unknown_by_position(earlier.generator, Rng(seed))
        for share in options.shares:
            bugged = texts.words(schema, share, seed) if share else plain
            later = train(schema, bugged, settings, seed=2 * seed + 1, **known)
            after = unknown_by_position(later.generator, Rng(seed))
            sample = (
                later.generator.sample(10, Rng(seed))["text"].tolist() if seed == options.seeds[0] else []
            )
            yield {
                "share": share,
                "seed": seed,
                "before": before,
                "after": after,
                "real": real_rates(bugged),
                "shift": first_word_shift(before, after),
                "noise": later.noise,
                "seconds": later.seconds,
                "losses": [later.losses[0], later.losses[-1]],
                "sample": sample,
                "clients": len(bugged),
            }


def noise_of_letters(schema, clients, settings, options):
    """What is left of the budget after the models of words, or all of it with --all."""
    if options.epsilon is None:
        return 0.0
    if options.all:
        return noise_for(schema, clients, tuple(sorted(settings.items())), ALL_COST, DELTA, 1)
    spoken = Schema(kind="text", vocabulary=public_words(WORDS), length=LENGTH)
    asked = tuple(sorted(WORD_SETTINGS.items()))
    noise = noise_for(spoken, clients, asked, WORDS_COST, DELTA, 2)
    paid = cost_of(spoken, clients, asked, noise, 2)
    return account.calibrate(
        lambda z: account.compose([paid, cost_of(schema, clients, settings, z, 1)]), ALL_COST, DELTA
    )


def measure_letters(texts, options):
    known_words = frozenset(public_words(LISTED))
    schema = Schema(kind="text", vocabulary="bytes", length=LETTERS)
    settings = {**LETTER_SETTINGS, **options.settings}
    noise = noise_of_letters(schema, len(texts.users), settings, options)
    others = Texts(("public",))
    for seed in range(*options.seeds):
        for share in options.shares:
            clients = texts.letters(schema, known_words, share, seed, not options.all)
            made = train(
                schema,
                clients,
                settings,
                epsilon=options.epsilon and ALL_COST,
                noise=noise,
                seed=100 + seed,
                device=options.device,
                chunk=options.chunk,
                last=options.last,
            )
            speaker = Speaker(made.generator)
            drawn = speaker.encoding.texts(speaker.rows(20_000, Rng(seed)))
            unseen = others.letters(schema, known_words, share, seed, not options.all)
            yield {
                "share": share,
                "seed": seed,
                "all": options.all,
                "last": options.last,
                "top": unlisted_words(made.generator, known_words, Rng(seed)),
                "frequent": frequent_words(speaker, clients),
                "held out": float(speaker.model.log_probability(speaker.generator.params, unseen.x).mean()),
                "with a space": float(np.mean([" " in word for word in drawn])),
                "with a space, real": float((clients.x == ord(" ") + 2).any(1).double().mean()),
                "noise": made.noise,
                "seconds": made.seconds,
                "losses": [made.losses[0], made.losses[-1]],
                "clients": len(clients),
            }


def frequent_words(speaker, clients, count=20):
    """The most frequent words that clients really hold, with their shares of all and their probabilities here."""
    held = Counter(speaker.encoding.texts(clients.x.long()))
    words = [word for word, _ in held.most_common(count)]
    chances = speaker.probabilities(words)
    return [
        [word, held[word] / len(clients.x), float(chance)]
        for word, chance in zip(words, chances, strict=True)
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("words", "letters"))
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1), metavar=("FIRST", "AFTER_LAST"))
    parser.add_argument("--shares", type=float, nargs="+", default=(0.0, 0.01, 0.1, 1.0))
    parser.add_argument("--epsilon", type=float, default=WORDS_COST)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--no-privacy", dest="epsilon", action="store_const", const=None)
    parser.add_argument(
        "--last", type=int, default=LAST, help="letters: the mean of so many last rounds' models"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--chunk", type=int, default=640)
    parser.add_argument("--set", dest="pairs", nargs="*", default=(), metavar="NAME=VALUE")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--name", default="")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.settings = dict(pair.split("=") for pair in options.pairs)
    if options.quick:
        options.settings |= {"rounds": 2, "most_batches": 1}
    texts = Texts(users=200 if options.quick else 0)
    measured = measure_words if options.what == "words" else measure_letters
    options.out.mkdir(parents=True, exist_ok=True)
    found = []
    for result in measured(texts, options):
        spent = ALL_COST if options.what == "letters" and options.epsilon else options.epsilon
        usual = WORD_SETTINGS if options.what == "words" else LETTER_SETTINGS
        used = {**usual, **options.settings}
        found.append({**result, "epsilon": spent, "delta": DELTA, "settings_used": used})
        print(json.dumps({key: value for key, value in result.items() if key != "sample"}), flush=True)
        file = options.out / f"{options.name or options.what}.{options.seeds[0]}.json"
        file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
