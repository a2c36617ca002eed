"""Settings of the model of letters, by how likely it finds the unknown first words of users who take no part.

python experiments/inspection_text/tried.py "" clip=0.3 clip=0.3,rounds=400 --device cuda --out FILE.jsonl

Each setting is trained once; what is kept is the mean of the models after the last 1, 20, 50 and 100 rounds.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import measure
import torch

from fedsynth.data.schema import Schema
from fedsynth.inspection.text import Speaker
from fedsynth.research.word_shift import unlisted_words
from fedsynth.rng import Rng
from training import train

LAST = (1, 20, 50, 100)


def judged(made, unseen, known):
    """How likely the words of others are under the mean of the last models, and the likeliest words of each."""
    for last in (last for last in LAST if last <= len(made.ends)):
        mean = torch.stack(made.ends[-last:]).mean(0)
        generator = replace(made.generator, parts={"model": mean})
        speaker = Speaker(generator)
        likely = speaker.model.log_probability(speaker.generator.params, unseen.x).mean()
        yield {
            "last": last,
            "held out": float(likely),
            "top": unlisted_words(generator, known, Rng(0)),
            "frequent": measure.frequent_words(speaker, unseen),
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("settings", nargs="+", metavar="NAME=VALUE,...")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--users", type=int, default=0, help="a trial with so many")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--chunk", type=int, default=640)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further training after so long")
    parser.add_argument("--no-privacy", dest="epsilon", action="store_const", const=None, default=10.0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.all = False
    began = time.monotonic()
    texts, others = measure.Texts(users=options.users), measure.Texts(("public",))
    known = frozenset(measure.public_words(measure.LISTED))
    schema = Schema(kind="text", vocabulary="bytes", length=measure.LETTERS)
    clients = texts.letters(schema, known, options.share, 0, True)
    unseen = others.letters(schema, known, options.share, 0, True)
    for text in options.settings:
        if time.monotonic() - began > options.seconds:
            break
        settings = {**measure.LETTER_SETTINGS, **dict(pair.split("=") for pair in text.split(",") if pair)}
        noise = measure.noise_of_letters(schema, len(clients), settings, options)
        known_of = {"noise": noise, "device": options.device, "chunk": options.chunk, "last": max(LAST)}
        made = train(schema, clients, settings, epsilon=options.epsilon, seed=200, **known_of)
        for found in judged(made, unseen, known):
            line = {"share": options.share, "epsilon": options.epsilon, **found, "settings_used": settings}
            line |= {"noise": noise, "seconds": made.seconds}
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            words = [word for word, _ in found["top"][:12]]
            print(text, found["last"], round(found["held out"], 2), round(made.seconds), words, flush=True)


if __name__ == "__main__":
    main()
