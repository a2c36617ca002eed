"""The statement says what was released, each number once and right, and claims nothing that is not so."""

import json
import math
import re
from dataclasses import replace

import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent
from scipy.optimize import brentq
from scipy.stats import norm

from fedsynth.errors import BadInput
from fedsynth.privacy.account import EpsilonDeltaDpEvent, epsilon, repeat
from fedsynth.privacy.ledger import Entry, Ledger
from fedsynth.privacy.statement import Statement, disagreement, statement
from fedsynth.privacy.wording import belief, shown

KEYS = {
    "unit", "adjacency", "trust", "sampling", "epsilon", "delta", "accountant", "private", "simulation",
    "projection", "releases", "caveats", "text", "audited", "against", "units",
}  # fmt: skip


@pytest.fixture(scope="module")
def ledger():
    made = Ledger(None)
    made.append(LaplaceDpEvent(12.0), what="class counts", run="a")
    for number in range(30):
        made.append(PoissonSampledDpEvent(0.25, GaussianDpEvent(1.7)), what=f"round {number + 1}", run="a")
    return made


@pytest.fixture(scope="module")
def made(ledger):
    return statement(ledger, delta=3e-6, sampling="poisson", caveats=["One key opens all messages."])


def once(text, number):
    return len(re.findall(rf"(?<![\d.,]){re.escape(number)}(?![\d,]|\.\d)", text)) == 1


def test_it_has_exactly_the_keys_of_the_interface(made):
    assert set(made.to_dict()) == KEYS


def test_each_number_stands_in_the_text_once(made, ledger):
    assert made.epsilon == pytest.approx(ledger.epsilon(3e-6))
    for number in (shown(made.epsilon), "3e-06", belief(made.epsilon), "12", "30", "1.7", "0.25"):
        assert once(made.text, number), number


def test_no_other_number_stands_in_it(made):
    expected = {shown(made.epsilon), "3e-06", belief(made.epsilon).rstrip("%"), "12", "30", "1.7", "0.25"}
    assert set(re.findall(r"\d[\d.,]*(?:e-\d+)?(?<![.,])", made.text)) == expected


def test_shown_numbers_are_never_below_the_computed_ones():
    assert [shown(value) for value in (7.9301, 7.93, 0.1234, 12.01, 123.4, 99.95)] == [
        "7.94", "7.93", "0.124", "12.1", "124", "100",
    ]  # fmt: skip
    assert belief(0.0) == "50.0%" and belief(40.0) == "practically 100%"


def test_releases_are_listed_with_what_each_costs_alone(made):
    counts, rounds = made.releases
    assert (counts["what"], counts["count"], rounds["what"], rounds["count"]) == (
        "class counts",
        1,
        "round",
        30,
    )
    assert counts["epsilon_alone"] == pytest.approx(epsilon(LaplaceDpEvent(12.0), 3e-6))
    assert counts["epsilon_alone"] < rounds["epsilon_alone"] < made.epsilon


def test_it_says_what_is_protected_against_whom_and_what_is_not(made):
    assert made.private and not made.simulation and made.trust == "central"
    assert "all data of one client (whoever owns the rows, such as a patient) together" in made.text
    assert "has to be trusted" in made.text and "drawn independently" in made.text
    assert "One key opens all messages." in made.text.split("Not covered:")[1]


def test_a_seeded_run_claims_nothing(ledger, made):
    simulated = statement(ledger, delta=3e-6, sampling="poisson", seeded=True)
    assert simulated.text.startswith("simulation: no privacy")
    assert (simulated.private, simulated.simulation, simulated.epsilon, simulated.delta) == (
        False,
        True,
        None,
        None,
    )
    assert all(release["epsilon_alone"] is None for release in simulated.releases)
    assert any(f"would be ({shown(made.epsilon)}, 3e-06)" in caveat for caveat in simulated.caveats)
    assert "These results are differentially private" not in simulated.text


def test_a_run_without_privacy_says_so():
    bare = statement(Ledger(None), delta=1e-5)
    assert not bare.private and bare.epsilon is None and bare.trust == "none"
    assert bare.text.startswith("No privacy:")


def test_one_open_release_leaves_no_claim(ledger):
    leaky = Ledger(None)
    leaky.append(GaussianDpEvent(3.0), what="round")
    leaky.append(NonPrivateDpEvent(), what="raw counts")
    made = statement(leaky, delta=1e-5)
    assert not made.private and made.epsilon is None
    assert made.text.startswith("No privacy:") and "raw counts, once (without protection)" in made.text


def test_inferred_columns_are_named_and_void_the_flag(ledger):
    made = statement(ledger, delta=3e-6, sampling="poisson", inferred=["age", "postcode"])
    assert not made.private and made.text.startswith("Incomplete:") and "age, postcode" in made.text


def test_a_projection_says_so_first(ledger):
    made = statement(ledger, delta=3e-6, sampling="poisson", projection=2_000_000)
    assert (
        made.projection == 2_000_000 and made.text.startswith("Projection:") and once(made.text, "2,000,000")
    )


def test_local_releases_report_the_client_who_sent_most():
    local = Ledger(None)
    for client, count in (("a", 2), ("b", 4)):
        local.append(EpsilonDeltaDpEvent(0.2), what="vote", holder=client, trust="local", count=count)
    made = statement(local, delta=1e-6, adjacency="replace-one")
    assert made.trust == "local" and made.releases[0]["count"] == 4
    assert made.epsilon == pytest.approx(0.8, abs=1e-3) and "nobody has to be trusted" in made.text


def test_delta_is_not_called_the_probability_that_the_bound_fails(made):
    assert "except for a total probability mass of delta" in made.text
    assert "cases whose probability is" not in made.text


@pytest.mark.parametrize(("claimed", "times"), [(1.0, 16.1), (8.0, 3.6)])
def test_what_the_words_say_of_delta_is_so(claimed, times):
    """One Gaussian release leaks more than epsilon several times as often as delta, epsilon + log 2 at most twice."""

    def delta_of(shift):
        return norm.cdf(shift / 2 - claimed / shift) - math.exp(claimed) * norm.cdf(
            -shift / 2 - claimed / shift
        )

    def exceeded(shift, loss):
        return norm.sf((loss - shift**2 / 2) / shift)

    shift = brentq(lambda shift: delta_of(shift) - 1e-5, 1e-3, 10)
    assert exceeded(shift, claimed) / 1e-5 == pytest.approx(times, abs=0.1)
    assert exceeded(shift, claimed + math.log(2)) <= 2e-5


def test_a_statement_without_a_claim_counts_nobody(ledger):
    assert statement(ledger, delta=3e-6, sampling="poisson", units=333_334, seeded=True).units is None


@pytest.mark.parametrize(("units", "private"), [(299_999, True), (333_334, False), (None, True)])
def test_a_delta_of_one_in_the_units_or_more_is_no_complete_promise(ledger, units, private):
    made = statement(ledger, delta=3e-6, sampling="poisson", units=units)
    assert made.private == private and made.units == units
    assert any("not below 1 /" in caveat for caveat in made.caveats) != private
    assert made.text.startswith("Incomplete:") != private


def test_a_statement_of_before_is_read(made, tmp_path):
    older = {key: value for key, value in made.to_dict().items() if key != "units"}
    (tmp_path / "privacy.json").write_text(json.dumps(older))
    assert Statement.load(tmp_path / "privacy.json") == made


def test_several_runs_are_mentioned():
    several = Ledger(None)
    for run in "abc":
        several.append(GaussianDpEvent(5.0), what="rounds", run=run)
    assert "3 runs on the same data" in statement(several, delta=1e-5).text


def test_an_audit_is_quoted(ledger):
    found = {"epsilon_lower": 1.234, "confidence": 0.95, "method": "one-run audit"}
    made = statement(ledger, delta=3e-6, sampling="poisson", audited=found)
    assert once(made.text, "1.23") and once(made.text, "95") and "one-run audit" in made.text


def test_it_survives_the_file(made, tmp_path):
    made.save(tmp_path / "privacy.json")
    assert Statement.load(tmp_path / "privacy.json") == made
    assert set(json.loads((tmp_path / "privacy.json").read_text())) == KEYS
    (tmp_path / "privacy.json").write_text("{}")
    with pytest.raises(BadInput, match="not a privacy statement"):
        Statement.load(tmp_path / "privacy.json")


def shared_out(public=2.0, count=10):
    """Ten noisy sums: a participant knows half of the noise's variance that the public does not."""
    ledger = Ledger(None)
    event = None if public is None else GaussianDpEvent(public)
    entry = Entry(GaussianDpEvent(2.0 / 2**0.5), "noisy sum", trust="distributed", count=count, public=event)
    ledger.append_all([entry])
    return ledger


def test_the_epsilon_of_noise_in_shares_holds_against_a_participant_and_both_numbers_are_stated(tmp_path):
    made = statement(shared_out(), delta=1e-5)
    assert made.epsilon == pytest.approx(epsilon(GaussianDpEvent(2.0 / 20**0.5), 1e-5), rel=1e-3)
    assert made.against["participant"] == made.epsilon
    assert made.against["public"] == pytest.approx(epsilon(GaussianDpEvent(2.0 / 10**0.5), 1e-5), rel=1e-3)
    assert made.against["public"] < 0.75 * made.epsilon
    assert once(made.text, shown(made.epsilon)) and once(made.text, shown(made.against["public"]))
    assert "against a participant, who knows its own share" in made.text
    made.save(tmp_path / "privacy.json")
    assert Statement.load(tmp_path / "privacy.json") == made


def test_where_a_participant_knows_nothing_more_there_is_one_number(made):
    same = statement(shared_out(public=2.0 / 2**0.5), delta=1e-5)
    assert same.against is None and made.against is None
    assert not any("earlier versions" in caveat for caveat in same.caveats)


def test_lines_of_before_are_said_to_count_the_noise_of_all(ledger):
    before = statement(shared_out(public=None), delta=1e-5)
    assert before.against is None
    assert any("1 lines of the ledger count the noise of all participants" in one for one in before.caveats)


def test_a_seeded_run_states_no_number_against_anybody():
    assert statement(shared_out(), delta=1e-5, seeded=True).against is None


def test_a_file_of_before_is_read(made, tmp_path):
    path = tmp_path / "privacy.json"
    path.write_text(json.dumps({key: value for key, value in made.to_dict().items() if key != "against"}))
    assert Statement.load(path) == made


def test_an_unknown_sampling_is_refused(ledger):
    with pytest.raises(BadInput, match="did you mean 'poisson'"):
        statement(ledger, delta=1e-5, sampling="poison")


CHANGES = {
    "unit": "record", "adjacency": "zero-out", "trust": "local", "sampling": "none", "delta": 1e-6, "private": False,
    "simulation": True, "against": {"public": 1.0, "participant": 2.0}, "releases": (),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_field_is_named(made, name):
    said = disagreement(replace(made, **{name: CHANGES[name]}), made)
    assert said.startswith(f"{name} is {'a list of 0' if name == 'releases' else CHANGES[name]} there, and ")
    assert said.endswith(
        "a list of 2 by the ledger" if name == "releases" else f"{getattr(made, name)} by the ledger"
    )


def test_what_other_libraries_change_is_no_disagreement_and_more_is(made):
    assert disagreement(made, made) is None
    assert disagreement(replace(made, epsilon=made.epsilon * 1.0005), made) is None
    assert disagreement(replace(made, epsilon=made.epsilon * 0.99), made).startswith("epsilon is")
    assert disagreement(replace(made, epsilon=None), made).startswith("epsilon is None there")
    counts, rounds = made.releases
    for lie in ({**rounds, "count": 29}, {**rounds, "extra": 1}, {**rounds, "what": "rounds"}):
        said = disagreement(replace(made, releases=(counts, lie)), made)
        assert said == "releases is a list of 2 there, and a list of 2 by the ledger"
    close = {**rounds, "epsilon_alone": rounds["epsilon_alone"] * 1.0005}
    assert disagreement(replace(made, releases=[counts, close]), made) is None


def test_what_says_nothing_of_the_cost_is_not_compared(made):
    other = {"accountant": "rdp", "projection": 9, "caveats": (), "text": "", "audited": {"a": 1}, "units": 7}
    assert disagreement(replace(made, **other), made) is None


def test_fields_that_a_statement_of_before_does_not_have_are_not_compared():
    both = statement(shared_out(), delta=1e-5)
    assert disagreement(replace(both, against=None), both) is None
    off = {**both.against, "public": 0.9 * both.against["public"]}
    assert disagreement(replace(both, against=off), both).startswith("against is")


def test_all_numbers_are_counted_under_the_terms_that_are_stated():
    """By one accountant and adjacency, for one unit: the total, each release alone, and those against the public."""
    mixed = Ledger(None)
    mixed.append(GaussianDpEvent(4.0), what="class counts", unit="client")
    entry = Entry(
        GaussianDpEvent(3.0), "noisy sum", unit="record", trust="distributed", public=GaussianDpEvent(5.0)
    )
    mixed.append_all([entry])
    terms = {"adjacency": "replace-one", "accountant": "rdp"}
    made = statement(mixed, delta=1e-5, unit="record", **terms)
    assert (made.unit, made.adjacency, made.accountant, made.delta) == ("record", "replace-one", "rdp", 1e-5)
    assert made.epsilon == mixed.answer(1e-5, unit="record", **terms).epsilon
    assert made.against["public"] == mixed.answer(1e-5, unit="record", public=True, **terms).epsilon
    counts, sums = made.releases
    assert counts["epsilon_alone"] == pytest.approx(epsilon(GaussianDpEvent(4.0), 1e-5, **terms), rel=1e-9)
    assert sums["epsilon_alone"] == pytest.approx(epsilon(GaussianDpEvent(3.0), 1e-5, **terms), rel=1e-9)
    usual = statement(mixed, delta=1e-5, unit="record")
    assert (
        usual.epsilon < 0.9 * made.epsilon and usual.adjacency == "add-remove" and usual.accountant == "pld"
    )
    assert usual.against["public"] < 0.9 * made.against["public"]


def test_trust_is_that_of_the_most_trusting_release():
    ledger = Ledger(None)
    for trust in ("local", "distributed", "central"):
        ledger.append(GaussianDpEvent(9.0), what=f"{trust} sum", trust=trust)
        assert statement(ledger, delta=1e-5).trust == trust


def test_an_open_release_has_no_epsilon_of_its_own_and_the_unit_is_that_of_the_first():
    ledger = Ledger(None)
    ledger.append(GaussianDpEvent(9.0), what="step", unit="record")
    assert (
        statement(ledger, delta=1e-5).unit == "record"
        and statement(Ledger(None), delta=1e-5).unit == "client"
    )
    seeded = statement(Ledger(None), delta=1e-5, seeded=True)
    assert (
        seeded.accountant == "pld" and seeded.simulation and not seeded.private and len(seeded.caveats) == 1
    )


def test_counts_of_a_release_add_up_whatever_its_number():
    ledger = Ledger(None)
    kinds = (("noisy sum", 2, 1), ("noisy sum", 3, 12), ("noisy sum", 1, 0), ("7", 1, 0))
    ledger.append_all([Entry(GaussianDpEvent(9.0), what, count=n, round=number) for what, n, number in kinds])
    listed = [(release["what"], release["count"]) for release in statement(ledger, delta=1e-5).releases]
    assert listed == [("noisy sum", 6), ("7", 1)]
    alone = statement(ledger, delta=1e-5).releases[0]["epsilon_alone"]
    assert alone == pytest.approx(epsilon(repeat(GaussianDpEvent(9.0), 6), 1e-5), rel=1e-9)


def test_a_message_of_ones_own_costs_alone_what_it_costs_in_all():
    local = Ledger(None)
    local.append(GaussianDpEvent(3.0), what="message", holder="a", trust="local")
    made = statement(local, delta=1e-5)
    assert made.releases[0]["epsilon_alone"] == pytest.approx(made.epsilon)


def test_the_accountant_is_the_one_that_answered(ledger):
    assert statement(ledger, delta=1e-12, sampling="poisson").accountant == "rdp"


def test_caveats_have_the_numbers_that_they_are_about(ledger):
    caveat = statement(ledger, delta=3e-6, sampling="poisson", units=333_334).caveats[0]
    assert "333334" in caveat.replace(",", "")
    leaky = Ledger(None)
    leaky.append(NonPrivateDpEvent(), what="raw counts")
    assert "inf" not in " ".join(statement(leaky, delta=1e-5, seeded=True).caveats)


def test_unknown_keys_in_a_file_are_named(made, tmp_path):
    path = tmp_path / "privacy.json"
    path.write_text(json.dumps({**made.to_dict(), "epsilom": 1.0}))
    with pytest.raises(BadInput, match=r"privacy\.json.*epsilom"):
        Statement.load(str(path))
