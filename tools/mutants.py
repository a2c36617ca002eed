"""Mutation testing of the files that a privacy promise rests on: `make mutants`, or some files by name.

For each file, mutmut changes one expression at a time and runs the tests that `mutants.toml` names for it. Results go
to `mutants.json`; `mutation_summary.py` writes docs/mutation.md from them. A file whose results are there and whose
source has not changed is not run again: with `--survivors`, only the mutants that survived the last time are. With
`--sample N`, a file with more than N mutants is judged by N of them, drawn at random with the file's name as the seed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "mutants"
RESULTS = ROOT / "tools" / "mutants.json"
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.toml"
WRAPPERS = (["property"], ["cached_property"], ["lru_cache"], ["contextmanager"])
KILLED = {1: "killed", 3: "killed", 0: "survived", 5: "untested", 33: "untested"}  # others: out of time

SETTINGS = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/fedsynth/{file}"]
do_not_mutate_patterns = ['^\\s*raise ']
pytest_add_cli_args = ["-m", "not slow", "--tb=no", "-o", "addopts=-q --strict-markers -p no:cacheprovider",
  "-p", "no:unraisableexception", "-p", "no:threadexception"]
pytest_add_cli_args_test_selection = {tests}
process_isolation = "forkserver"
use_git_change_detection = false
timeout_constant = 1.0
timeout_multiplier = 5.0
"""

# What torch imports at its first use is imported before the forks, and not looked through by their collectors.
# A failing example is enough: hypothesis need not look for the smallest one.
# Values that are cached in the process would hide a mutant from every test but the first.
CONFTEST = """

import gc
from collections import OrderedDict

import hypothesis

PHASES = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
hypothesis.settings.register_profile("mutants", phases=PHASES, database=None, deadline=None)
hypothesis.settings.load_profile("mutants")
torch.testing.assert_close(torch.zeros(1), torch.zeros(1))
torch.func.vmap(torch.func.grad(torch.sin))(torch.zeros(2))
gc.freeze()


@pytest.fixture(autouse=True)
def nothing_cached():
    import {module} as mutated

    for value in vars(mutated).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
        elif isinstance(value, OrderedDict):
            value.clear()
"""


def source_of(file: str) -> Path:
    """The file as it is in the repository."""
    return ROOT / "src" / "fedsynth" / file


def fingerprint(file: str) -> str:
    """Changes when the code of the file does; comments and docstrings may change."""
    return fingerprint_of(source_of(file).read_text())


def fingerprint_of(text: str) -> str:
    """The same for the text of a module."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def undecorated(text: str) -> str:
    """The same module with `@property` and its like applied after the function: mutmut leaves decorated ones alone."""
    lines = text.splitlines()
    for node in reversed(list(_wrapped(ast.parse(text)))):
        decorator = node.decorator_list[0]
        first, last = node.lineno - 1, node.end_lineno
        indent = " " * node.col_offset
        applied = f"{indent}{node.name} = {ast.unparse(decorator)}({node.name}__plain)"
        lines[first] = lines[first].replace(f"def {node.name}(", f"def {node.name}__plain(", 1)
        lines[decorator.lineno - 1 : last] = [*lines[first:last], applied]
    return "\n".join(lines) + "\n"


def _wrapped(tree: ast.Module) -> Any:
    """Functions with one decorator that can be applied afterwards, in the order of the text."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and "Protocol" not in [ast.unparse(base) for base in node.bases]:
            yield from _wrapped(ast.Module(node.body, []))
        elif isinstance(node, ast.FunctionDef) and [_name(d) for d in node.decorator_list] in WRAPPERS:
            yield node


def _name(decorator: ast.expr) -> str:
    return ast.unparse(decorator).partition("(")[0]


def workspace(file: str, tests: list[str]) -> Path:
    """A copy of source and tests in which this file alone is mutated."""
    place = WORK / file.replace("/", "_").removesuffix(".py")
    place.mkdir(parents=True, exist_ok=True)
    for name in ("src", "tests"):
        shutil.rmtree(place / name, ignore_errors=True)
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.rmtree(place / "mutants" / "tests", ignore_errors=True)
    (place / "src" / "fedsynth" / file).write_text(undecorated(source_of(file).read_text()))
    selection = json.dumps([f"tests/{test}" for test in tests])
    settings = SETTINGS.format(file=file, tests=selection)
    (place / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings)
    module = "fedsynth." + file.replace("/", ".").removesuffix(".py")
    with (place / "tests" / "conftest.py").open("a") as conftest:
        conftest.write(CONFTEST.format(module=module))
    return place


# mutmut 3.8 reads a private name of pytest that pytest 9.2 no longer has.
# Tests are timed by the processor, and a mutant by the clock only where it seems to sleep: a busy machine kills none.
RUN = """import time, _pytest.timing, pytest
from mutmut.workers import isolation
pytest.Item._nodeid = property(lambda item: item.nodeid)
_pytest.timing.perf_counter = time.process_time
stop_by_clock = isolation.register_timeout
isolation.register_timeout = lambda pid, timeout_s: stop_by_clock(pid, max(900, 20 * timeout_s))
from mutmut.__main__ import cli; cli()"""
SHOW = """import json, sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
print(json.dumps({name: get_diff_for_mutant(name) for name in json.load(sys.stdin)}))"""
NAMES = """import io, json, sys
from pathlib import Path
from mutmut.__main__ import get_mutant_name, write_all_mutants_to_file
path = Path(sys.argv[1])
mutated = write_all_mutants_to_file(out=io.StringIO(), source=path.read_text(), filename=path)
print(json.dumps([get_mutant_name(path, name) for name in mutated.mutant_names]))"""


def python(place: Path, program: str, *arguments: str, given: str = "") -> str:
    """What a program prints in the workspace; the exit status of mutmut says nothing about survivors."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, input=given)
    (place / "log.txt").write_text(done.stdout + done.stderr)
    return done.stdout


def verdicts(place: Path, file: str) -> dict[str, str]:
    """Mutant -> killed, survived, untested, slow (out of time) or open (not run)."""
    meta = json.loads((place / "mutants" / "src" / "fedsynth" / f"{file}.meta").read_text())
    codes = meta["exit_code_by_key"]
    return {name: "open" if code is None else KILLED.get(code, "slow") for name, code in codes.items()}


def changes(place: Path, mutants: list[str]) -> list[dict[str, str]]:
    """For each mutant the function that it is in, and the lines before and after."""
    shown = json.loads(python(place, SHOW, given=json.dumps(mutants))) if mutants else {}
    return [{"name": name, **_change(name, diff.splitlines())} for name, diff in shown.items()]


def _change(mutant: str, diff: list[str]) -> dict[str, str]:
    removed = [line[1:].strip() for line in diff if line.startswith("-") and not line.startswith("---")]
    added = [line[1:].strip() for line in diff if line.startswith("+") and not line.startswith("+++")]
    function = mutant.rpartition("__mutmut_")[0].rpartition(".")[2]
    function = function.removeprefix("xǁ").removeprefix("x_").removesuffix("__plain").replace("ǁ", ".")
    return {"function": function, "before": " ".join(removed), "after": " ".join(added)}


def key(mutant: dict[str, str]) -> str:
    """The name of a mutant in the list of equivalent ones: its function and the line that it makes."""
    return f"{mutant['function']}: {mutant['after']}"


def unexplained(result: dict[str, Any], reasons: dict[str, str]) -> list[dict[str, str]]:
    """The survivors that are not in the list of equivalent ones."""
    return [mutant for mutant in result["survived"] if key(mutant) not in reasons]


def drawn(place: Path, file: str, sample: int) -> tuple[list[str], int]:
    """Names of the mutants that judge a file, and how many there are; no names where all of them do."""
    names = json.loads(python(place, NAMES, f"src/fedsynth/{file}"))
    return (random.Random(file).sample(names, sample) if 0 < sample < len(names) else []), len(names)


def run(place: Path, file: str, workers: int, names: list[str]) -> dict[str, str]:
    """Run the mutants that are named, or all: the verdicts."""
    shutil.rmtree(place / "mutants", ignore_errors=True)
    python(place, RUN, "run", "--max-children", str(workers), *names)
    (place / "log.txt").rename(place / "run.txt")
    result = verdicts(place, file)
    return {name: result[name] for name in names} if names else result


def judged(file: str, tests: list[str], workers: int, sample: int) -> dict[str, Any]:
    """Run the mutants of one file, or a sample of them."""
    place, source = workspace(file, tests), fingerprint(file)
    names, mutants = drawn(place, file, sample)
    result = run(place, file, workers, names)
    counts = {kind: list(result.values()).count(kind) for kind in ("killed", "slow", "open")}
    alive = [name for name, verdict in result.items() if verdict in ("survived", "untested")]
    survived = [{**mutant, "verdict": result[mutant["name"]]} for mutant in changes(place, alive)]
    return {
        "source": source,
        "mutants": mutants,
        "drawn": len(result),
        **counts,
        "survived": survived,
    }


def judged_again(
    file: str, tests: list[str], workers: int, earlier: dict[str, Any], left: list[dict[str, str]]
) -> dict[str, Any]:
    """The earlier result after another run of those that are `left` of its survivors."""
    names = [mutant["name"] for mutant in left]
    result = run(workspace(file, tests), file, workers, names)
    dead = {name: result[name] for name in names if result[name] in ("killed", "slow")}
    counts = {kind: earlier[kind] + list(dead.values()).count(kind) for kind in ("killed", "slow")}
    return {**earlier, **counts, "survived": [m for m in earlier["survived"] if m["name"] not in dead]}


def main() -> None:
    """Run the files that are named, or all whose results are missing or of another source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="for example privacy/clip.py")
    parser.add_argument("--survivors", action="store_true", help="only those that survived the last time")
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="at most N mutants a file, drawn at random"
    )
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    tests = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text())["tests"]
    equivalents = tomllib.loads(EQUIVALENT.read_text())
    for file in given.files or tests:
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        fresh = file in known and known[file]["source"] == fingerprint(file) and not known[file]["open"]
        if fresh and not given.files and not given.survivors:
            continue
        if fresh and given.survivors:
            left = unexplained(known[file], equivalents.get(file, {}))
            if not left:
                continue
            found = judged_again(file, tests[file], given.workers, known[file], left)
        else:
            found = judged(file, tests[file], given.workers, given.sample)
        if found["open"] == found["drawn"]:
            print(f"{file}: nothing was run, the tests fail without a mutant; see run.txt in {WORK}")
            continue
        latest = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        latest[file] = found
        RESULTS.write_text(json.dumps(dict(sorted(latest.items())), indent=1, ensure_ascii=False) + "\n")
        survived = f"{len(found['survived'])} survived, {found['open']} not run"
        print(f"{file}: {found['drawn']} of {found['mutants']} mutants, {survived}")


if __name__ == "__main__":
    main()
