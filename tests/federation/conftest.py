import pytest
from real_sites import Federation


@pytest.fixture(scope="session")
def federation(tmp_path_factory):
    """Three sites and a server, as processes; each run reads the sites' site.toml anew."""
    made = Federation(tmp_path_factory.mktemp("federation"))
    made.start_all()
    yield made
    made.close()
