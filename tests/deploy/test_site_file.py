import json
import tomllib

import pandas as pd
import pytest
import tomli_w
from dp_accounting import GaussianDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.errors import BadInput, BudgetExhausted, NotPrivate
from fedsynth.privacy.ledger import Entry, Ledger

SCHEMA = {
    "version": 1,
    "kind": "table",
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 99},
        {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
    ],
}
GOOD = {
    "data": {"file": "rows.csv", "schema": "schema.json", "client_column": "who"},
    "budget": {"epsilon": 3.0, "delta": 1e-6, "unit": "client"},
    "policy": {"recipes": ["dpd_fvae"], "transports": ["clear", "secagg"], "minimum_cohort": 3},
    "state": {"folder": "state"},
}


@pytest.fixture
def write(tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    rows = {"who": ["b", "a", "a"], "age": [30, 40, 50], "ill": ["no", "yes", "no"]}
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)

    def write(keys):
        (tmp_path / "site.toml").write_text(tomli_w.dumps(keys))
        return tmp_path / "site.toml"

    return write


def changed(table, **keys):
    return {**GOOD, table: {**GOOD[table], **keys}}


def test_what_a_site_says_of_itself_is_read(write, tmp_path):
    found = SiteFile.load(write(GOOD))
    assert found.policy.recipes == ("dpd_fvae",) and found.policy.minimum_cohort == 3
    assert found.policy.budget.epsilon == 3.0 and found.folder == tmp_path / "state"
    holding = found.holding()
    assert holding.names == ("b", "a") and holding.clients.sizes.tolist() == [1, 2]
    assert "who" not in [column.name for column in holding.schema.columns]
    assert found.site().folder.is_dir()


def test_a_budget_names_the_neighbors_under_which_it_is_charged(write):
    assert SiteFile.load(write(GOOD)).policy.budget.adjacency == "add-remove"
    strict = SiteFile.load(write(changed("budget", adjacency="replace-one")))
    assert strict.policy.budget.adjacency == "replace-one"


def test_posts_are_read_with_their_owners_and_cut_as_the_schema_says(write, tmp_path):
    schema = {"version": 1, "kind": "text", "vocabulary": ["a", "b"], "length": 2}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    posts = [("ann", "a b a"), ("bob", "b. a"), ("ann", "zebra"), ("eve", "  ")]
    lines = [json.dumps({"user": user, "post": text}) for user, text in posts]
    (tmp_path / "posts.jsonl").write_text("\n".join(lines) + "\n")
    data = {"file": "posts.jsonl", "schema": "schema.json", "client_column": "user", "text_column": "post"}
    policy = {**GOOD["policy"], "recipes": ["dp_fedavg_lm"], "inspect": True}
    holding = SiteFile.load(write({**GOOD, "data": data, "policy": policy})).holding()
    assert holding.names == ("ann", "bob") and holding.clients.sizes.tolist() == [3, 2]
    assert holding.raw.data == ("a b", "a", "b .", "a", "zebra")
    del data["client_column"]
    alone = SiteFile.load(write({**GOOD, "data": data, "policy": policy}))
    assert alone.holding().clients.sizes.tolist() == [5]


def test_without_a_client_column_the_site_is_one_client(write):
    keys = {**GOOD, "data": {"file": "rows.csv", "schema": "schema.json"}}
    path = write(keys)
    frame = pd.read_csv(path.parent / "rows.csv").drop(columns="who")
    frame.to_csv(path.parent / "rows.csv", index=False)
    assert SiteFile.load(path).holding().clients.sizes.tolist() == [3]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({**GOOD, "polici": {}}, r"\[polici\]: no such table; did you mean 'policy'"),
        (changed("data", fil="x"), r"\[data\] fil: no such key; did you mean 'file'"),
        (changed("budget", epsilon="3"), r"\[budget\] epsilon='3': expected a number"),
        (changed("budget", epsilon=True), r"\[budget\] epsilon=True"),
        (changed("budget", epsilon=-1.0), "epsilon=-1.0"),
        (changed("budget", unit="row"), "unit='row'"),
        (changed("budget", adjacency="add"), "adjacency='add'"),
        (changed("policy", recipes=["dpd_fvea"]), "did you mean 'dpd_fvae'"),
        (changed("policy", recipes=[3]), r"\[policy\] recipes="),
        (changed("policy", transports=["clea"]), "did you mean 'clear'"),
        (changed("policy", minimum_cohort=0), "minimum_cohort=0"),
        (
            {key: GOOD[key] for key in ("data", "policy", "state")},
            r"\[budget\] epsilon: missing; .*delta: missing",
        ),
        (changed("data", schema="other.json"), "other.json"),
    ],
)
def test_every_mistake_is_named(write, keys, said):
    with pytest.raises(BadInput, match=said):
        SiteFile.load(write(keys))


def test_rows_that_are_not_there_or_do_not_fit_are_named(write, tmp_path):
    with pytest.raises(BadInput, match="gone.csv does not exist"):
        SiteFile.load(write(changed("data", file="gone.csv"))).holding()
    with pytest.raises(BadInput, match="client column 'whom'"):
        SiteFile.load(write(changed("data", client_column="whom"))).holding()
    rows = (tmp_path / "rows.csv").read_text()
    (tmp_path / "rows.csv").write_text(rows.replace("50", "500"))
    with pytest.raises(BadInput, match="'age'.*500"):
        SiteFile.load(write(GOOD)).holding()


def test_two_mistakes_are_told_together(write):
    keys = {**changed("data", fil="x"), "extra": {}}
    with pytest.raises(BadInput) as found:
        SiteFile.load(write(keys))
    assert "fil: no such key" in str(found.value) and "[extra]" in str(found.value)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(
    table=st.sampled_from([*GOOD, "test", "compute", "x"]),
    key=st.text(max_size=10),
    value=plain,
    data=st.data(),
)
def test_no_site_file_whatever_it_holds_leads_to_anything_but_a_sentence(
    tmp_path_factory, table, key, value, data
):
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    known = list(GOOD.get(table, {})) + [key]
    keys = {**GOOD, table: {**GOOD.get(table, {}), data.draw(st.sampled_from(known)): value}}
    try:
        text = tomli_w.dumps(keys)
        tomllib.loads(text)
    except (TypeError, ValueError, tomllib.TOMLDecodeError):
        return  # TOML has no such value
    (folder / "site.toml").write_text(text, encoding="utf-8")
    try:
        SiteFile.load(folder / "site.toml")
    except BadInput as error:
        assert str(error)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_toml_are_a_sentence(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput):
        SiteFile.load(path)


def paid_for(folder, holder="who"):
    """The site's schema as its own rows paid for it, with the ledger beside it."""
    bought = {**SCHEMA, "client": holder, "provenance": {"age": "paid", "ill": "public"}}
    (folder / "schema.json").write_text(json.dumps(bought))
    Ledger(folder / "schema.ledger.jsonl").append(GaussianDpEvent(3.0), what="schema", run="s")


def test_what_a_sites_rows_paid_for_its_schema_counts_in_its_own_budget_once(write, tmp_path):
    paid_for(tmp_path)
    described = SiteFile.load(write(GOOD))
    for _ in range(2):  # a site is made anew for every run
        lines = described.site().ledger.lines()
        assert [(line.what, line.event["noise_multiplier"]) for line in lines] == [("schema", 3.0)]
    alone = Entry(GaussianDpEvent(1.8), "round 1")
    described.policy.budget.check_all(Ledger(None), [alone])
    with pytest.raises(BudgetExhausted):
        described.policy.budget.check_all(described.site().ledger, [alone])


def test_a_paid_schema_without_its_ledger_or_with_other_payers_is_refused(write, tmp_path):
    paid_for(tmp_path, holder="household")
    with pytest.raises(NotPrivate, match="'household' paid"):
        SiteFile.load(write(GOOD))
    (tmp_path / "schema.ledger.jsonl").unlink()
    with pytest.raises(NotPrivate, match="no ledger beside"):
        SiteFile.load(write(GOOD))
