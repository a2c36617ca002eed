"""Packages that add to fedsynth: the example is installed and used, broken ones are named and left out."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from real_sites import Federation

from fedsynth import extend
from fedsynth.assess import metric
from fedsynth.cli.main import main
from fedsynth.data.schema import Schema
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.errors import BadInput, FedsynthError, Incompatible, NotPrivate
from fedsynth.plugins import load_plugins
from fedsynth.recipes import registry
from fedsynth.recipes.budget import Target, fit_budget
from samples import TABLE, make_frame

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "fedsynth-bernoulli"
PATH = "PYTHONPATH"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The example, installed in a folder of its own."""
    source, target = tmp_path_factory.mktemp("source") / "package", tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, source)
    words = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run([*words, "--target", str(target), str(source)], check=True)
    return target


@pytest.fixture(scope="module")
def environment(package):
    """The environment of processes that find the example; those started meanwhile inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PATH, os.pathsep.join([str(ROOT / "src"), str(package), os.environ.get(PATH, "")]))
        yield dict(os.environ)


@pytest.fixture
def installing(tmp_path, monkeypatch):
    """Make a package with these entry points and this code importable."""
    load_plugins.cache_clear()

    def install(name: str, entries: str, code: str) -> None:
        (tmp_path / f"{name}.py").write_text(code)
        described = tmp_path / f"{name}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (described / "entry_points.txt").write_text(entries)
        monkeypatch.syspath_prepend(str(tmp_path))

    yield install
    load_plugins.cache_clear()


def command(*words, env) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "fedsynth.cli.main", *map(str, words)], env=env, capture_output=True, text=True
    )


def call(*words) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(map(str, words)))
    return left.value.code or 0


@pytest.mark.recipe
def test_the_example_trains_in_the_simulator_and_samples_later(package, installing, tmp_path, capsys):
    rows, schema, out = tmp_path / "rows.csv", tmp_path / "schema.json", tmp_path / "RUN"
    make_frame(np.repeat(np.arange(40), 5)).to_csv(rows, index=False)
    schema.write_text(json.dumps(TABLE))
    budget = ["--epsilon", 8, "--delta", "1e-3", "--rounds", 3, "--set", "passes=2", "--rows", 50]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(package))
        words = ["--schema", schema, "--recipe", "bernoulli", *budget, "--out", out]
        assert call("run", rows, *words) == 0, capsys.readouterr().err
        told = json.loads((out / "privacy.json").read_text())
        assert told["private"] and 7 < told["epsilon"] <= 8
        assert [release["count"] for release in told["releases"]] == [1, 3]
        assert any("fedsynth-bernoulli 0.1.0" in caveat for caveat in told["caveats"])
        assert call("sample", out, "--rows", 7, "--out", tmp_path / "seven.csv") == 0
        assert len(pd.read_csv(tmp_path / "seven.csv")) == 7
    load_plugins.cache_clear()
    capsys.readouterr()
    assert call("sample", out, "--rows", 7, "--out", tmp_path / "none.csv") == 2
    errors = capsys.readouterr().err
    assert "must be installed here too" in errors and len(errors.strip().splitlines()) == 1


@pytest.mark.recipe
def test_the_example_trains_over_two_sites_and_samples_later(environment, tmp_path):
    federation = Federation(tmp_path, ("ada", "bern"))
    try:
        for name in federation.sites:
            federation.site_file(name, recipes=["bernoulli"])
        federation.start_all()
        words = [
            "run",
            "--federation",
            federation.kits,
            "--schema",
            federation.schema,
            "--recipe",
            "bernoulli",
        ]
        budget = ["--epsilon", 8, "--delta", "1e-2", "--rounds", 2, "--rows", 50, "--round-timeout", 600]
        done = command(*words, *budget, "--out", tmp_path / "RUN", env=environment)
        assert done.returncode == 0, done.stderr
    finally:
        federation.close()
    told = json.loads((tmp_path / "RUN" / "privacy.json").read_text())
    assert told["private"] and told["epsilon"] <= 8
    done = command("sample", tmp_path / "RUN", "--rows", 7, "--out", tmp_path / "seven.csv", env=environment)
    assert done.returncode == 0 and len(pd.read_csv(tmp_path / "seven.csv")) == 7, done.stderr


def test_a_site_without_the_package_refuses_with_a_sentence(tmp_path):
    federation = Federation(tmp_path, ("ada", "bern"))
    federation.site_file("ada", recipes=["bernoulli"])
    with pytest.raises(BadInput, match="'bernoulli': unknown.*must be installed here too"):
        SiteFile.load(tmp_path / "ada" / "site.toml")


def test_the_example_s_metric_is_measured_under_the_name_of_its_package(package, monkeypatch, installing):
    monkeypatch.syspath_prepend(str(package))
    real, schema = make_frame(np.arange(50)), Schema.from_dict(TABLE)
    (step,) = metric.metric_steps(real, real, schema)
    (score,) = step.run().scores
    assert (score.name, score.value) == ("smallest category (fedsynth-bernoulli 0.1.0)", 1.0)


BROKEN = {
    "import": ("import nothing_like_it\n", "ModuleNotFoundError"),
    "no recipe": ("RECIPE = 3\n", "int is no Recipe"),
    "taken": (
        "from fedsynth.extend import RECIPES, Recipe\nRECIPE = Recipe('extra', RECIPES['fvae'].compose, ())\n"
        "RECIPE = RECIPES['fvae']\n",
        "is called 'fvae'",
    ),
    "no rounds": (
        "from fedsynth.extend import Recipe\nRECIPE = Recipe('extra', lambda task: None, ())\n",
        "no setting has the role rounds",
    ),
}


@pytest.mark.parametrize(("code", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_package_is_named_and_the_rest_goes_on(installing, capsys, code, reason):
    installing("stranger", "[fedsynth.recipes]\nextra = stranger:RECIPE\n", code)
    sys.modules.pop("stranger", None)
    assert call("recipes") == 0
    shown = capsys.readouterr()
    assert "dpd_fvae" in shown.out and "extra" not in shown.out
    (sentence,) = shown.err.strip().splitlines()
    assert "the package stranger 1.0 cannot add 'extra'" in sentence and reason in sentence
    with pytest.raises(BadInput, match="stranger 1.0 cannot add 'extra'"):
        registry.recipe_named("extra")


def test_a_package_cannot_take_the_name_of_a_recipe_of_fedsynth(installing, capsys):
    code = "from fedsynth.extend import RECIPES\nRECIPE = RECIPES['fvae']\n"
    installing("thief", "[fedsynth.recipes]\nfvae = thief:RECIPE\n", code)
    assert registry.recipe_named("fvae").package == ""
    assert "fedsynth has one of that name" in capsys.readouterr().err


def test_a_mechanism_of_a_package_is_found_if_it_has_both_halves(installing, capsys):
    code = "from fedsynth.extend import CentralGaussian as Whole\n\n\nclass Half:\n    release = None\n"
    installing("masks", "[fedsynth.mechanisms]\nwhole = masks:Whole\nhalf = masks:Half\n", code)
    assert extend.mechanism_named("whole") is extend.CentralGaussian
    with pytest.raises(BadInput, match="masks 1.0 cannot add 'half' .no wire and no init"):
        extend.mechanism_named("half")


HISTORIES = """
import pandas as pd
from fedsynth.extend import Table, replacing


class Histories(Table):
    kind = "histories"
    ending = ""
    expected = "a table of people and one of visits"

    def read(self, path, column=None):
        return {name: pd.read_csv(f"{path}/{name}.csv") for name in ("person", "visit")}

    def plain(self, data):
        return data["visit"].merge(data["person"], on="id") if isinstance(data, dict) else data

    def decode(self, x, y):
        frame = super().decode(x, y).assign(id=range(len(x)))
        return {"person": frame[["id", "sex"]], "visit": frame[["id", "age", "ill"]]}

    def join(self, parts):
        if not isinstance(parts[0], dict):
            return super().join(parts)
        return {name: super(Histories, self).join([part[name] for part in parts]) for name in parts[0]}

    def write(self, data, path):
        with replacing(path) as folder:
            folder.mkdir()
            for name, frame in data.items():
                frame.to_csv(folder / f"{name}.csv", index=False)


class Nothing:
    kind = "nothing"
"""


@pytest.mark.recipe
def test_a_kind_of_data_of_another_package_is_trained_sampled_written_and_shown(installing, tmp_path, capsys):
    entries = "[fedsynth.modalities]\nhistories = past:Histories\nnothing = past:Nothing\n"
    installing("past", entries, HISTORIES)
    columns = [column for column in TABLE["columns"] if column["name"] in ("age", "sex", "ill")]
    written = {"version": 1, "kind": "histories", "label": "ill", "client": "id", "columns": columns}
    schema, rows, out = tmp_path / "schema.json", tmp_path / "rows", tmp_path / "RUN"
    schema.write_text(json.dumps(written))
    frame = make_frame(np.repeat(np.arange(40), 5))
    rows.mkdir()
    frame.drop_duplicates("owner")[["owner", "sex"]].rename(columns={"owner": "id"}).to_csv(
        rows / "person.csv", index=False
    )
    frame[["owner", "age", "ill"]].rename(columns={"owner": "id"}).to_csv(rows / "visit.csv", index=False)
    assert call("schema", "check", rows, "--schema", schema) == 0
    words = [
        "--recipe",
        "dpd_fvae",
        "--epsilon",
        8,
        "--delta",
        "1e-3",
        "--rounds",
        2,
        "--rows",
        30,
        "--quiet",
    ]
    assert call("run", rows, "--schema", schema, *words, "--out", out) == 0, capsys.readouterr().err
    assert len(pd.read_csv(out / "synthetic" / "visit.csv")) == 30
    assert "synthetic" in json.loads((out / "ledger.jsonl").read_text().splitlines()[-1])["files"]
    assert call("sample", out, "--rows", 7, "--condition", "ill=yes", "--out", tmp_path / "seven") == 0
    seven = {name: pd.read_csv(tmp_path / "seven" / f"{name}.csv") for name in ("person", "visit")}
    assert set(seven["visit"]["ill"]) == {"yes"} and len(seven["person"]) == 7
    assert "<td>" in (out / "public.html").read_text()
    (out / "synthetic" / "visit.csv").write_text("id,age,ill\n0,1,no\n")
    assert call("report", out) == 2 and "was changed" in capsys.readouterr().err
    with pytest.raises(BadInput, match="unknown kind 'nothing'.*Nothing is no class that extends Modality"):
        Schema.from_dict({**written, "kind": "nothing"})


def foreign(compose) -> registry.Recipe:
    return registry.Recipe("foreign", compose, (("client", "central"),), package="stranger 1.0")


def test_the_cost_of_a_foreign_recipe_is_that_of_its_objects_whatever_its_settings_are_called(schema):
    @dataclass(frozen=True)
    class Misnamed:
        rounds: int = extend.setting(2, "rounds", role="rounds")
        silence: float = extend.setting(1.0, "says that it is noise", role="noise")

    fixed = extend.ClientPrivacy(noise_multiplier=0.3)

    def loud(task, settings=Misnamed()):  # noqa: B008
        return registry.RECIPES["fvae"].compose(
            task, rounds=extend.Rounds(rounds=settings.rounds), privacy=fixed
        )

    recipe = foreign(loud)
    task = recipe.task(schema, 50)
    with pytest.raises(FedsynthError):  # more `silence` makes nothing cheaper, so no epsilon is promised
        fit_budget(recipe, task, recipe.values({}), Target(1.0, 1e-5))


def test_a_foreign_recipe_composes_an_algorithm_and_no_class_of_its_own(schema):
    class Cheaper(extend.Algorithm):
        def charges(self, arrived=None):
            return []

    def cheap(task, rounds=extend.Rounds()):  # noqa: B008
        fvae = registry.RECIPES["fvae"].compose(task, rounds=rounds)
        return Cheaper(**{name: getattr(fvae, name) for name in fvae.__dataclass_fields__})

    recipe = foreign(cheap)
    with pytest.raises(Incompatible, match="stranger 1.0 composes a Cheaper"):
        recipe.build(recipe.task(schema, 10), {})


def test_a_recipe_without_a_setting_for_noise_promises_no_epsilon(schema):
    @dataclass(frozen=True)
    class Long:
        rounds: int = extend.setting(2, "rounds", role="rounds")

    def silent(task, settings=Long()):  # noqa: B008
        return registry.RECIPES["fvae"].compose(task, rounds=extend.Rounds(rounds=settings.rounds))

    recipe = foreign(silent)
    with pytest.raises(NotPrivate, match="role noise or budget"):
        fit_budget(recipe, recipe.task(schema, 50), recipe.values({}), Target(1.0, 1e-5))


def test_every_recipe_says_which_of_its_settings_are_rounds_and_noise():
    for recipe in registry.RECIPES.values():
        asks_once = recipe.name in ("calm", "lopub", "locop")
        assert len(recipe.named("rounds")) == (0 if asks_once else 1)
        assert len(recipe.named("noise", "budget")) == 1
