import ast
import json
from functools import cache
from pathlib import Path

import pytest

from fedsynth.cli.main import main
from fedsynth.recipes.registry import RECIPES

HERE = Path(__file__).parents[1]
SOURCE = HERE / "src" / "fedsynth"
ROOMS = [
    "late", "rng", "errors", "plugins", "data", "models", "transport", "privacy", "training", "federation", "simulator",
    "recipes", "synthesis", "assess.scores", "assess.attacks", "assess.audit", "assess.tuning", "assess", "inspection",
    "extend", "deploy", "assess.report", "research", "api", "cli", "__main__",
]  # fmt: skip
HEAVY = (
    "matplotlib",
    "statsmodels",
    "nvflare",
    "tenseal",
    "opacus",
    "onnxruntime",
    "pfl",
    "flwr",
    "sqlalchemy",
    "duckdb",
)
FILES = sorted(SOURCE.rglob("*.py"))
EVERYWHERE = [
    file
    for room in ("src", "tests", "benchmarks", "experiments", "tools")
    for file in (HERE / room).rglob("*.py")
]


@cache
def tree_of(file: Path) -> ast.AST:
    return ast.parse(file.read_text())


@cache
def imported_by(file: Path) -> frozenset[str]:
    """The libraries and packages whose modules a file imports when it runs."""
    return frozenset(module.split(".")[0] for module in runtime_imports(tree_of(file)))


def named(file: Path) -> str:
    return str(file.relative_to(HERE))


def room_of_module(parts: tuple[str, ...]) -> str:
    """The room that a module lies in: the longest beginning of its name that is one."""
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in ROOMS:
            return ".".join(parts[:end])
    raise AssertionError(f"{'.'.join(parts)} lies in no room")


def room_of(file: Path) -> str:
    return room_of_module(file.relative_to(SOURCE).with_suffix("").parts)


def runtime_imports(tree: ast.AST) -> list[str]:
    """Modules that are imported when the code runs, at its top or inside a function; not those for types alone."""
    found: list[str] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            found += [node.module or ""]
            if node.module == "fedsynth":
                found += [f"fedsynth.{alias.name}" for alias in node.names]
        else:
            found += runtime_imports(node)
    return found


def own_rooms(tree: ast.AST) -> set[str]:
    modules = [module for module in runtime_imports(tree) if module.startswith("fedsynth.")]
    return {room_of_module(tuple(module.split(".")[1:])) for module in modules}


@pytest.mark.parametrize("file", [f for f in FILES if f != SOURCE / "__init__.py"], ids=named)
def test_a_room_imports_only_from_rooms_before_it(file):
    place = ROOMS.index(room_of(file))
    later = {room for room in own_rooms(tree_of(file)) if ROOMS.index(room) > place}
    assert not later, f"{named(file)} imports from {sorted(later)}"


def test_the_page_on_architecture_shows_the_rooms_in_their_order():
    page = (HERE / "docs" / "architecture.md").read_text()
    drawn = next(line for line in page.splitlines() if line.startswith("data → ")).split(" → ")
    assert drawn == ROOMS[ROOMS.index("data") : ROOMS.index("synthesis") + 1]
    rooms = {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").exists()}
    assert {room for room in rooms if f"| `{room}/`" not in page} == set()


def test_an_import_against_the_direction_is_seen():
    wrong = (
        "def f():\n    from fedsynth.cli import run\nif TYPE_CHECKING:\n    import fedsynth.research.joined\n"
    )
    assert own_rooms(ast.parse(wrong)) == {"cli"}


def test_no_python_file_is_longer_than_400_lines():
    lengths = {named(file): len(file.read_text().splitlines()) for file in EVERYWHERE}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


@pytest.mark.parametrize("library", HEAVY)
def test_a_heavy_dependency_is_imported_in_one_file_at_most(library):
    users = [named(file) for file in FILES if library in imported_by(file)]
    # the engine of real federations has several halves, each in its own process
    apart = [user for user in users if not user.startswith(f"src/fedsynth/deploy/{library}/")]
    assert len(apart) <= (0 if len(users) > len(apart) else 1), users


@pytest.mark.parametrize("file", FILES, ids=named)
def test_nothing_in_the_source_loads_pickles_or_runs_text(file):
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in (
                "eval",
                "exec",
                "pickle.load",
                "pickle.loads",
                "torch.load",
                "joblib.load",
            ), called
            flags = {word.arg: ast.unparse(word.value) for word in node.keywords}
            assert flags.get("shell") in (None, "False")
            assert flags.get("allow_pickle") in (None, "False")
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            assert "pickle" not in ast.unparse(node)


def untyped(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            bare = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
            if bare or node.returns is None:
                found.append(node.name)
    return found


@pytest.mark.parametrize("file", FILES, ids=named)
def test_public_functions_are_typed(file):
    assert untyped(tree_of(file)) == []


def test_an_untyped_function_is_seen():
    assert untyped(ast.parse("def f(x): ...\ndef g(x: int) -> int: ...\ndef h(): ...")) == ["f", "h"]


def test_no_file_is_named_for_nothing():
    empty = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "misc.py"}
    assert [named(file) for file in EVERYWHERE if file.name in empty] == []


def public_classes(tree: ast.AST) -> list[str]:
    return [n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]


def test_no_two_public_classes_share_a_name():
    places: dict[str, list[str]] = {}
    for file in FILES:
        for name in public_classes(tree_of(file)):
            places.setdefault(name, []).append(named(file))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_a_class_of_a_function_is_seen():
    assert public_classes(ast.parse("def f():\n    class A: ...\nclass _B: ...")) == ["A"]


def test_test_files_have_names_of_their_own():
    names = [file.name for file in (HERE / "tests").rglob("*.py")]
    assert sorted(names) == sorted(set(names))


def test_the_recipes_command_describes_every_recipe(capsys):
    with pytest.raises(SystemExit):
        main(["recipes", "--json"])
    described = json.loads(capsys.readouterr().out)
    assert set(described) == set(RECIPES)
    assert all(
        len(entry["what"]) > 20 and entry["unit"] in ("client", "record") for entry in described.values()
    )
