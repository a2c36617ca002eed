"""OMOP and FHIR records give the linked tables of a schema; PostgreSQL is a real server on 127.0.0.1."""

import json
import os
import pwd
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import pandas as pd
import pytest

from fedsynth.cli.main import main
from fedsynth.data.cells import read_cells
from fedsynth.data.linked_draft import draft_linked
from fedsynth.data.modality import Source, modality_of
from fedsynth.data.reading import read_all, read_tables
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Ledger
from fedsynth.research.hospital_exports import omop_tables, write_fhir
from fedsynth.research.hospital_records import records
from fedsynth.rng import Rng
from fedsynth.synthesis.paid_tables import pay_for_tables

RECORDS = records(40, seed=3)
PASSWORD = "s3cret of the house"


def sources(folder: Path, text: str) -> Path:
    path = folder / "hospital.toml"
    path.write_text(text)
    return path


@pytest.fixture
def omop_database(tmp_path) -> Path:
    with sqlite3.connect(tmp_path / "omop.db") as connection:
        for name, frame in omop_tables(RECORDS).items():
            frame.to_sql(name, connection, index=False)
    connection.close()
    return sources(tmp_path, 'kind = "omop"\nurl = "sqlite:///omop.db"\n')


@pytest.fixture
def omop_folder(tmp_path) -> Path:
    (tmp_path / "cdm").mkdir()
    for place, (name, frame) in enumerate(omop_tables(RECORDS).items()):
        path = tmp_path / "cdm" / name.upper()
        frame.to_csv(f"{path}.csv", index=False) if place % 2 else frame.to_parquet(f"{path}.parquet")
    return sources(tmp_path, 'kind = "omop"\nfolder = "cdm"\n')


@pytest.fixture
def fhir_export(tmp_path) -> Path:
    write_fhir(RECORDS, tmp_path / "export")
    return tmp_path / "export"


def same_measurements(frames: dict[str, pd.DataFrame]) -> bool:
    """Whether each test's values are those of the records."""
    values = frames["measurement"].groupby("test")["value"].apply(sorted)
    truth = RECORDS["measurement"].groupby("test")["value"].apply(sorted)
    return {name: list(map(float, each)) for name, each in values.items()} == truth.to_dict()


@pytest.mark.parametrize("where", ["omop_database", "omop_folder", "fhir_export"])
def test_the_tables_hold_the_records(where, request, caplog):
    frames = read_all(request.getfixturevalue(where))
    assert {"person", "visit", "condition", "measurement"} <= {*frames}
    assert ("drug" in frames) == where.startswith("omop")
    assert [len(frames[name]) for name in ("person", "visit")] == [40, len(RECORDS["visit"])]
    assert sorted(frames["visit"]["type"]) == sorted(RECORDS["visit"]["type"])
    assert sorted(frames["condition"]["condition"]) == sorted(RECORDS["visit"]["diagnosis"])
    assert {*frames["measurement"]["unit"]} == {"mmol/L", "mg/dL", "mm[Hg]"}
    assert same_measurements(frames)
    assert not caplog.messages
    born = 2015 - RECORDS["person"]["age"]
    assert sorted(frames["person"]["birth year"]) == sorted(born)
    assert {str(sex).lower() for sex in frames["person"]["sex"]} == {"female", "male"}


@pytest.mark.parametrize("where", ["omop_database", "omop_folder", "fhir_export"])
def test_a_schema_is_drafted_and_the_rows_fit_it(where, request):
    path = request.getfixturevalue(where)
    drafted = draft_linked(read_all(path)).schema
    tables = {table.name: (table.parent, table.key, table.order) for table in drafted.tables}
    assert tables["visit"] == ("person", "person id", "start")
    assert tables["measurement"] == ("visit", "visit id", None)
    assert tables["condition"] == ("visit", "visit id", None)
    clients = modality_of(drafted).clients(Source(path))
    assert clients.count == 40


def cells_of(frame: pd.DataFrame) -> list[list[object]]:
    """What is read of each row of a table that pays."""
    columns = [read_cells(frame[name]) for name in frame]
    return [[*row] for row in zip(*(zip(c.texts, c.kinds(), strict=True) for c in columns), strict=True)]


@pytest.mark.parametrize("spoiled", ["year_of_birth", "gender_concept_id", "person_id"])
def test_one_person_changes_no_cell_of_another_in_files(omop_folder, spoiled):
    """A type that is guessed from a whole column would: all dates become texts by one that is none."""
    folder = omop_folder.parent / "cdm"
    person = omop_tables(RECORDS)["person"].astype(object)
    seen = []
    for value in (person.iloc[-1][spoiled], "unknown", "2020-01-01", "3.5"):
        (folder / "PERSON.parquet").unlink(missing_ok=True)
        person.assign(**{spoiled: [*person[spoiled][:-1], value]}).to_csv(folder / "PERSON.csv", index=False)
        frames = read_all(omop_folder, paid=True)
        others = {str(one) for one in person["person_id"][:-1]}
        seen.append(
            {
                name: cells_of(frames[name][frames[name]["person id"].isin(others)])
                for name in ("person", "visit")
            }
        )
    assert len(seen[0]["person"]) == len(person) - 1 and all(one == seen[0] for one in seen[1:])


@pytest.mark.parametrize("where", ["omop_database", "omop_folder", "fhir_export"])
def test_a_table_is_paid_for_whether_or_not_somebody_has_rows_in_it(where, request, tmp_path):
    path = request.getfixturevalue(where)
    if where == "omop_database":
        with sqlite3.connect(tmp_path / "omop.db") as connection:
            connection.execute("DELETE FROM measurement")
        connection.close()
    elif where == "omop_folder":
        file = next((tmp_path / "cdm").glob("MEASUREMENT*"))
        file.unlink()
        omop_tables(RECORDS)["measurement"].iloc[:0].to_csv(tmp_path / "cdm" / "MEASUREMENT.csv", index=False)
    else:
        next(path.glob("Observation*")).unlink()
    assert "measurement" not in read_all(path)
    frames = read_all(path, paid=True)
    assert len(frames["measurement"]) == 0
    draft = pay_for_tables(frames, epsilon=50, delta=1e-2, ledger=Ledger(None), rng=Rng(1))
    assert "measurement" not in [table.name for table in draft.schema.tables]
    assert {"measurement.test", "measurement.value"} <= {*draft.left_out}


def test_a_measurement_without_a_visit_belongs_to_the_one_that_was_open(omop_database):
    frames = read_all(omop_database)
    assert frames["measurement"]["visit id"].notna().all()
    assert (frames["measurement"]["day"] == 0).all()  # the records measure on the first day


def test_days_count_from_the_visit_s_first(fhir_export):
    later = {
        "resourceType": "Observation",
        "code": {"text": "late"},
        "effectiveDateTime": "2024-12-30T10:00:00Z",
    }
    visit = RECORDS["visit"].iloc[0]
    owner = {
        "subject": {"reference": f"Patient/p{visit['person id']}"},
        "encounter": {"reference": "Encounter/e1"},
    }
    (fhir_export / "more.ndjson").write_text(json.dumps({**later, **owner}) + "\n")
    frame = read_all(fhir_export)["measurement"]
    days = (pd.Timestamp("2024-12-30") - pd.Timestamp(visit["admission"])).days
    assert frame["day"][frame["test"] == "late"].tolist() == [days]


def test_rows_of_nobody_are_left_out_and_counted(fhir_export, caplog):
    stray = {
        "resourceType": "Observation",
        "subject": {"reference": "Patient/nobody"},
        "code": {"text": "glucose"},
    }
    void = {"resourceType": "Observation", "status": "entered-in-error", "code": {"text": "never"}}
    lines = "\n".join(json.dumps(one) for one in (stray, void, {"resourceType": "Device"}))
    (fhir_export / "more.ndjson").write_text(lines + "\n\n")
    frames = read_all(fhir_export)
    total = len(RECORDS["measurement"]) + 1
    assert caplog.messages == [f"measurement: 1 of {total} rows belong to no visit; they are left out"]
    assert same_measurements(frames)


def test_codes_that_the_schema_does_not_list_are_dropped_or_renamed(fhir_export, tmp_path):
    schema = draft_linked(read_all(fhir_export)).schema.to_dict()
    for column in schema["tables"]["measurement"]["columns"]:
        if column["name"] == "test":
            column["categories"] = ["glucose", "other"]
    agreed = {table.name: table.schema for table in Schema.from_dict(schema).tables}
    for instead, kept in (("drop", {"glucose"}), ("other", {"glucose", "other"})):
        path = sources(tmp_path, f'kind = "fhir"\nfolder = "export"\nunlisted = "{instead}"\n')
        assert {*read_tables(path, agreed)["measurement"]["test"]} == kept


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not NDJSON in UTF-8"),
        ("[]", "line 1 has no resourceType"),
        ('{"resourceType": "Patient", "birthDate": "1950"}', "line 1 is no Patient as FHIR has it"),
    ],
)
def test_a_broken_export_is_named_by_file_and_line(tmp_path, line, message):
    (tmp_path / "Patient.ndjson").write_text(line + "\n")
    with pytest.raises(BadInput, match=f"Patient.ndjson: .*{message}"):
        read_all(tmp_path)


def test_an_export_without_visits_is_refused(tmp_path):
    (tmp_path / "Patient.ndjson").write_text('{"resourceType": "Patient", "id": "1"}\n')
    with pytest.raises(BadInput, match="holds no Encounter"):
        read_all(tmp_path)


@pytest.fixture(scope="module")
def postgres():
    """The address of a server that this test started as an ordinary user."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [shutil.which("initdb")]
    if programs[-1] is None:
        pytest.skip("no PostgreSQL on this machine (make postgres)")
    pytest.importorskip("psycopg")
    folder = Path(
        tempfile.mkdtemp(prefix="fedsynth-postgres-")
    )  # folders of pytest are closed to other users
    as_user = {}
    if os.getuid() == 0:  # the server refuses to run as root
        nobody = pwd.getpwnam("nobody")
        as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o644)
    initdb, data = Path(str(programs[-1])), folder / "data"
    quiet = {"check": True, "capture_output": True, "cwd": folder, **as_user}
    login = ["-U", "reader", "-A", "scram-sha-256", f"--pwfile={folder / 'password'}"]
    subprocess.run([initdb, "-D", data, *login, "--no-sync"], **quiet)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = f"-h 127.0.0.1 -p {port} -k '' -F"
    control = initdb.with_name("pg_ctl")
    subprocess.run(
        [control, "-D", data, "-w", "-t", "600", "-l", folder / "log", "-o", settings, "start"], **quiet
    )
    yield f"postgresql://reader@127.0.0.1:{port}/postgres"
    subprocess.run([control, "-D", data, "-w", "-t", "600", "-m", "immediate", "stop"], **quiet)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def omop_server(postgres, tmp_path, monkeypatch) -> Path:
    """OMOP records in a server that asks for a password."""
    import sqlalchemy

    address = sqlalchemy.make_url(postgres).set(drivername="postgresql+psycopg", password=PASSWORD)
    engine = sqlalchemy.create_engine(address)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP SCHEMA IF EXISTS cdm CASCADE"))
        connection.execute(sqlalchemy.text("CREATE SCHEMA cdm"))
        for name, frame in omop_tables(RECORDS).items():
            days = {column: sqlalchemy.Date() for column in frame if column.endswith("_date")}
            frame = frame.assign(**{column: pd.to_datetime(frame[column]).dt.date for column in days})
            frame.to_sql(name, connection, schema="cdm", index=False, dtype=days)
    engine.dispose()
    monkeypatch.setenv("EHR_PASSWORD", PASSWORD)
    return sources(
        tmp_path, f'kind = "omop"\nurl = "{postgres}"\nschema = "cdm"\npassword_variable = "EHR_PASSWORD"\n'
    )


def test_omop_records_come_out_of_postgresql(omop_server):
    frames = read_all(omop_server)
    assert len(frames["person"]) == 40 and same_measurements(frames)
    assert frames["person"]["death"].notna().sum() == min(20, (RECORDS["person"]["chronic"] == "yes").sum())
    assert draft_linked(frames).schema.tables


def test_linked_tables_come_out_of_queries(omop_server, postgres, tmp_path):
    text = (
        f'kind = "sql"\nurl = "{postgres}"\npassword_variable = "EHR_PASSWORD"\n[tables]\n'
        'person = "SELECT person_id, year_of_birth::int AS born FROM cdm.person"\n'
        'visit = "cdm.visit_occurrence"\n'
    )
    frames = read_all(sources(tmp_path, text))
    assert list(frames["person"]) == ["person_id", "born"] and len(frames["visit"]) == len(RECORDS["visit"])


def test_postgresql_is_only_read(omop_server, postgres, tmp_path):
    query = "WITH gone AS (DELETE FROM cdm.person RETURNING 1) SELECT * FROM gone"
    text = f'kind = "sql"\nurl = "{postgres}"\npassword_variable = "EHR_PASSWORD"\nquery = "{query}"\n'
    with pytest.raises(BadInput, match="must not contain data-modifying|read-only transaction"):
        read_all(sources(tmp_path, text))


def test_a_run_on_postgresql_leaves_no_password_anywhere(omop_server, postgres, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    query = "SELECT year_of_birth, gender_concept_id FROM cdm.person"
    sources(
        tmp_path, f'kind = "sql"\nurl = "{postgres}"\npassword_variable = "EHR_PASSWORD"\nquery = "{query}"\n'
    )
    for command in (
        ["schema", "draft", "hospital.toml", "--out", "schema.json"],
        ["run", "hospital.toml", "--schema", "schema.json", "--recipe", "marginals", "--epsilon", "3", "--delta",
         "1e-3", "--seed", "1", "--rows", "5", "--out", "RUN"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code in (0, None), capfd.readouterr().err
    output = "".join(capfd.readouterr())
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert 'data = "hospital.toml"' in (tmp_path / "RUN" / "recipe.toml").read_text()
    assert len(files) > 5 and all(PASSWORD.encode() not in file.read_bytes() for file in files)
    assert PASSWORD not in output


def test_a_wrong_password_is_told_without_it(omop_server, monkeypatch):
    monkeypatch.setenv("EHR_PASSWORD", "wrong " + PASSWORD)
    with pytest.raises(BadInput, match="password authentication failed") as refused:
        read_all(omop_server)
    assert PASSWORD not in str(refused.value)
