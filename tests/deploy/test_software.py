"""What may mix in a federation: code that decides what a run computes is the same everywhere, the rest may differ."""

import shutil
import sys
from dataclasses import replace
from importlib.metadata import version

import pytest
from test_server_job import SCHEMA, site_file, world  # noqa: F401

from fedsynth.data.schema import Schema
from fedsynth.deploy.link.messages import Accept, Invite, Refuse, read, write
from fedsynth.deploy.link.patience import TooFewSites
from fedsynth.deploy.participation import terms_of
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.deploy.software import ROOT, difference, package_hash, recipe_hash, software
from fedsynth.recipes.registry import recipe_named
from fedsynth.synthesis.request import Request


@pytest.fixture
def installed(tmp_path):
    """Another installation of the same code."""
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(ROOT, tmp_path / "other" / "fedsynth", ignore=ignored)


@pytest.mark.parametrize(
    "file", ["recipes/marginals.py", "privacy/clip.py", "deploy/link/messages.py", "rng.py"]
)
def test_a_changed_line_where_a_run_is_composed_does_not_mix(installed, file):
    assert package_hash(installed) == package_hash()
    (installed / file).write_text((installed / file).read_text() + "\n# changed\n")
    package_hash.cache_clear()
    assert package_hash(installed) != package_hash()


@pytest.mark.parametrize(
    "file", ["cli/run.py", "assess/report/page.py", "deploy/nvflare/node.py", "deploy/site/site.py"]
)
def test_commands_reports_and_services_of_other_versions_may_mix(installed, file):
    assert (installed / file).exists()
    (installed / file).write_text("# rewritten\n")
    package_hash.cache_clear()
    assert package_hash(installed) == package_hash()


def test_two_versions_with_equal_hashes_mix_and_unequal_ones_are_told_apart_by_both_numbers():
    own = software("dpd_fvae")
    assert own["version"] == version("fedsynth") and difference(own, "dpd_fvae") == ""
    assert difference({**own, "version": "99.0"}, "dpd_fvae") == ""
    said = difference({**own, "version": "99.0", "package": "f" * 16}, "dpd_fvae")
    assert (
        f"the server has fedsynth 99.0 (ffffffff), this site {own['version']} ({own['package'][:8]})" in said
    )
    assert "install the same version" in said
    assert "recipe='dpd_fvae': its code at the server" in difference({**own, "recipe": "0"}, "dpd_fvae")
    assert "does not say which version" in difference({}, "dpd_fvae")


def test_a_recipe_of_another_package_is_known_by_all_files_of_that_package(tmp_path, monkeypatch):
    package = tmp_path / "strangers_recipe"
    package.mkdir()
    (package / "__init__.py").write_text("def compose(task):\n    raise NotImplementedError\n")
    (package / "parts.py").write_text("clip = 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from strangers_recipe import compose

    stranger = replace(recipe_named("dpd_fvae"), compose=compose)
    monkeypatch.setattr("fedsynth.deploy.software.recipe_named", lambda _: stranger)
    recipe_hash.cache_clear()
    before = recipe_hash("strange")
    (package / "parts.py").write_text("clip = 2.0\n")
    recipe_hash.cache_clear()
    assert recipe_hash("strange") != before
    recipe_hash.cache_clear()
    del sys.modules["strangers_recipe"]


def test_a_site_answers_an_invitation_of_its_own_code_and_refuses_another(tmp_path):
    site = SiteFile.load(site_file(tmp_path / "ada", 0)).site()
    request = Request.from_toml({"recipe": "dpd_fvae", "epsilon": 8.0, "delta": 1e-2, "rounds": 2})
    values = recipe_named("dpd_fvae").values({})
    terms = terms_of(request, Schema.from_dict(SCHEMA), values)
    assert isinstance(read(site.handle(write(Invite("r1", terms)))), Accept)
    older = replace(terms, software={**terms.software, "version": "0.1", "package": "0" * 16})
    answer = read(site.handle(write(Invite("r1", older))))
    assert (
        isinstance(answer, Refuse) and answer.code == "version" and "fedsynth 0.1 (00000000)" in answer.reason
    )


def test_a_run_over_sites_with_other_code_stops_before_it_begins_and_says_why(world, monkeypatch):  # noqa: F811
    channel = world.channel(world.files())
    monkeypatch.setattr(
        "fedsynth.deploy.participation.software", lambda _: {"version": "0.1", "package": "0" * 16}
    )
    with pytest.raises(TooFewSites, match="fedsynth 0.1"):
        world.conduct(channel)
    assert not (world.run / "ledger.jsonl").exists()
