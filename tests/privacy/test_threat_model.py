import math

import pytest
from threat_table import ASKED, PAGE, columns, page


def test_the_table_on_the_page_is_what_the_objects_say():
    assert PAGE.read_text() == page()


@pytest.fixture(scope="module")
def found():
    return columns()


def test_what_was_asked_holds_against_everybody_that_the_words_name(found):
    for name, against in found.items():
        assert against["fellow"] <= ASKED * (1 + 1e-6), name
        assert against["reader"] <= ASKED * (1 + 1e-6) and against["coordinator"] <= ASKED * (1 + 1e-6), name
        assert name == "`central`" or against["server"] <= ASKED * (1 + 1e-6), name


def test_a_participant_learns_more_than_the_public_where_noise_is_shared_out(found):
    shared = [against for name, against in found.items() if "distributed" in name]
    assert all(against["reader"] < against["fellow"] < against["helped"] for against in shared)


def test_the_server_of_central_noise_has_no_bound_and_the_network_no_amplification(found):
    assert math.isinf(found["`central`"]["server"])
    assert found["`central`"]["network"] > 2 * ASKED
