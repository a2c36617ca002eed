"""Ctrl-C and kill -9 of a real process, then --resume: the finished model is that of a run that was not stopped."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from fedsynth.cli.main import main
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import Folder

ROUNDS = 150  # rounds are short: enough of them to be stopped between two


@pytest.fixture(scope="module")
def arguments(schema, frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    frame.to_csv(folder / "data.csv", index=False)
    schema.save(folder / "schema.json")
    small = ["--set", "hidden=8", "--set", "latent=2", "--rounds", str(ROUNDS), "--rows", "10"]
    return [
        "run", str(folder / "data.csv"), "--schema", str(folder / "schema.json"), "--client-column", "owner",
        "--recipe", "dpd_fvae", "--epsilon", "8", "--delta", "1e-3", "--seed", "4", "--quiet", *small,
    ]  # fmt: skip


def in_process(*more):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in more])
    return ended.value.code or 0


@pytest.fixture(scope="module")
def straight(arguments, tmp_path_factory):
    out = tmp_path_factory.mktemp("straight") / "RUN"
    assert in_process(*arguments, "--out", out) == 0
    return (out / "generator.safetensors").read_bytes()


def started(*more):
    """The command as a process of its own, whose parent ignores Ctrl-C, as a shell does for a job in the background."""
    words = [sys.executable, "-m", "fedsynth.cli.main", *map(str, more)]
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=ignore
    )


def wait_for(process, out, rounds):
    """Until so many rounds are in the history."""
    deadline = time.monotonic() + 600
    while len(Folder(out).read_history()) < rounds:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)


def check(out, straight):
    assert (out / "generator.safetensors").read_bytes() == straight
    versions = [line["version"] for line in Folder(out).read_history()]
    assert versions == list(range(1, ROUNDS + 1))
    ledger = Ledger(out / "ledger.jsonl")
    numbers = [line.what.rpartition(", round ")[2] for line in ledger.lines() if ", round " in line.what]
    assert ledger.verify() == [] and set(numbers) == {str(version) for version in versions}
    assert not (out / "state").exists()


@pytest.mark.recipe
def test_interrupted_then_killed_then_resumed_equals_uninterrupted(arguments, straight, tmp_path):
    out = tmp_path / "RUN"
    process = started(*arguments, "--out", out)
    wait_for(process, out, 2)
    process.send_signal(signal.SIGINT)
    told, errors = process.communicate(timeout=600)
    assert process.returncode == 3 and told == ""
    assert "interrupted" in errors and "--resume" in errors and "Traceback" not in errors
    process = started("run", "--out", out, "--resume", "--quiet")
    wait_for(process, out, min(ROUNDS - 50, len(Folder(out).read_history()) + 3))
    process.kill()
    process.communicate()
    assert len(Ledger(out / "ledger.jsonl").lines()) >= len(Folder(out).read_history())
    assert in_process("run", "--out", out, "--resume", "--quiet") == 0
    check(out, straight)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_killed_at_random_moments_then_resumed_equals_uninterrupted(arguments, straight, tmp_path, seed):
    draw = random.Random(seed)
    out = tmp_path / "RUN"
    for _ in range(3):
        begun = Folder(out).recipe.exists()
        process = started(*(["run", "--resume", "--quiet"] if begun else arguments), "--out", out)
        try:
            process.communicate(timeout=draw.uniform(2.5, 8.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        if Folder(out).recipe.exists():
            assert len(Ledger(out / "ledger.jsonl").lines()) >= len(Folder(out).read_history())
    begun = Folder(out).recipe.exists()
    assert in_process(*(["run", "--resume", "--quiet"] if begun else arguments), "--out", out) == 0
    check(out, straight)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_keeps_nothing_ends_with_a_sentence_and_the_same_code(tmp_path, number):
    secret = tmp_path / "passphrase"
    os.mkfifo(secret, 0o600)
    process = started("federation", "renew", tmp_path / "kits", "--passphrase-file", secret)
    with secret.open("w"):  # opens once the command reads it
        process.send_signal(number)
        told, errors = process.communicate(timeout=600)
    assert (process.returncode, told) == (3, "")
    assert errors == "fedsynth: interrupted; start the same command again\n"
