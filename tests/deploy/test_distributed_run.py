"""A run without a trusted server, from rows to its statement."""

from fedsynth.data.clients import clients_from
from fedsynth.rng import Rng
from fedsynth.synthesis.synthesizer import Synthesizer

SMALL = {"hidden": (8,), "latent": 2}


def fitted(recipe, schema, frame, **more):
    given = {"epsilon": 20.0, "delta": 1e-3, "rounds": 1, **SMALL, **more}
    raw = clients_from(frame.drop(columns="owner"), clients=6, rng=Rng(1))
    return Synthesizer(recipe, schema.with_client(None), trust="distributed", **given).fit(raw)


def test_a_client_level_run_states_whom_it_trusts_with_what(schema, frame):
    made = fitted("dpd_fvae", schema, frame, threshold=5, colluders=1)
    stated = made.privacy
    assert stated.private and stated.trust == "distributed" and stated.adjacency == "zero-out"
    assert "at least 5 of the 6 parties" in stated.text and "up to 1 parties" in stated.text
    assert "the server, and each of the other participants" in stated.text
    assert stated.against is None  # who helps the server knows as much as one participant
    assert {release["event"]["type"] for release in stated.releases} == {
        "GaussianDpEvent", "PoissonSampledDpEvent"
    }  # fmt: skip
    assert len(made.sample(5)) == 5


def test_records_over_sites_are_counted_under_masks_and_paid_for(schema, frame):
    made = fitted("site_vae", schema, frame)
    counted = [release for release in made.privacy.releases if release["what"] == "number of records"]
    assert len(counted) == 1 and made.privacy.trust == "distributed" and made.privacy.unit == "record"
    assert (
        abs(made.request.arguments["records"] - len(frame)) < 6 * 25
    )  # noise of 20, and a little for shares
