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
from fedsynth.privacy import plugged
from fedsynth.recipes import registry
from fedsynth.recipes.budget import Target, fit_budget
from samples import TABLE, make_frame

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "fedsynth-bernoulli"
CACHES = (registry._installed, metric._installed, plugged._installed)
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
    for cache in CACHES:
        cache.cache_clear()

    def install(name: str, entries: str, code: str) -> None:
        (tmp_path / f"{name}.py").write_text(code)
        described = tmp_path / f"{name}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (described / "entry_points.txt").write_text(entries)
        monkeypatch.syspath_prepend(str(tmp_path))

    yield install
    for cache in CACHES:
        cache.cache_clear()


def command(*words, env) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "fedsynth.cli.main", *map(str, words)], env=env, capture_output=True, text=True
    )


def call(*words) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(map(str, words)))
    return left.value.code or 0


@pytest.mark.recipe
def test_the_example_trains_in_the_simulator_and_samples_later(environment, tmp_path):
    rows, schema, out = tmp_path / "rows.csv", tmp_path / "schema.json", tmp_path / "RUN"
    make_frame(np.repeat(np.arange(40), 5)).to_csv(rows, index=False)
    schema.write_text(json.dumps(TABLE))
    budget = ["--epsilon", 8, "--delta", "1e-3", "--rounds", 3, "--set", "passes=2", "--rows", 50]
    done = command(
        "run", rows, "--schema", schema, "--recipe", "bernoulli", *budget, "--out", out, env=environment
    )
    assert done.returncode == 0, done.stderr
    told = json.loads((out / "privacy.json").read_text())
    assert told["private"] and 7 < told["epsilon"] <= 8
    assert [release["count"] for release in told["releases"]] == [1, 3]
    assert any("fedsynth-bernoulli 0.1.0" in caveat for caveat in told["caveats"])
    done = command("sample", out, "--rows", 7, "--out", tmp_path / "seven.csv", env=environment)
    assert done.returncode == 0 and len(pd.read_csv(tmp_path / "seven.csv")) == 7, done.stderr
    here = {**environment, PATH: str(ROOT / "src")}
    done = command("sample", out, "--rows", 7, "--out", tmp_path / "none.csv", env=here)
    assert done.returncode == 2 and "must be installed here too" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


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
        budget = ["--epsilon", 8, "--delta", "1e-2", "--rounds", 2, "--rows", 50, "--round-timeout", 60]
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
        assert len(recipe.named("rounds")) == 1 == len(recipe.named("noise", "budget"))
