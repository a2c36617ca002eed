import json
import os
import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from fedsynth.cli.main import main
from fedsynth.data.reading import read_all, read_rows
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput

PATIENTS = pd.DataFrame({"patient id": [1, 1, 2], "age": [30, 31, 64], "sex": ["F", "F", "M"]})
SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 110},
        {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
    ],
}


def source(folder: Path, text: str) -> Path:
    path = folder / "source.toml"
    path.write_text(text)
    return path


@pytest.fixture
def database(tmp_path) -> Path:
    with sqlite3.connect(tmp_path / "ehr.db") as connection:
        PATIENTS.to_sql("patients", connection, index=False)
        connection.execute("CREATE VIEW research AS SELECT age, sex FROM patients WHERE age > 30")
    connection.close()
    return tmp_path / "ehr.db"


def test_one_table_may_lie_in_several_files(tmp_path):
    PATIENTS[:2].to_csv(tmp_path / "north.csv", index=False)
    PATIENTS[2:].to_parquet(tmp_path / "south.parquet")
    frame = read_rows(tmp_path, Schema.from_dict(SCHEMA))
    assert sorted(frame["age"]) == [30, 31, 64]
    assert list(read_all(tmp_path).columns) == list(PATIENTS.columns)


def test_files_of_one_table_have_the_same_columns(tmp_path):
    PATIENTS.to_csv(tmp_path / "a.csv", index=False)
    PATIENTS.drop(columns="sex").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(BadInput, match="b.csv: column 'sex' is in this file or in a.csv, not in both"):
        read_rows(tmp_path, Schema.from_dict(SCHEMA))


def test_a_view_of_sqlite_is_read(tmp_path, database):
    path = source(tmp_path, 'kind = "sql"\nurl = "sqlite:///ehr.db"\nview = "research"\n')
    assert read_rows(path).to_dict("list") == {"age": [31, 64], "sex": ["F", "M"]}


def test_a_query_is_read(tmp_path, database):
    query = "SELECT age, sex FROM patients WHERE sex LIKE '%F%' AND time('12:30') > time('12:00')"
    path = source(tmp_path, f'kind = "sql"\nurl = "sqlite:///ehr.db"\nquery = "{query}"\n')
    assert read_rows(path)["age"].tolist() == [30, 31]


def test_a_database_is_opened_for_reading_alone(tmp_path, database):
    before = database.read_bytes()
    query = "WITH x AS (SELECT 1) DELETE FROM patients RETURNING age"
    path = source(tmp_path, f'kind = "sql"\nurl = "sqlite:///ehr.db"\nquery = "{query}"\n')
    with pytest.raises(BadInput, match="readonly database"):
        read_rows(path)
    assert database.read_bytes() == before and {file.name for file in tmp_path.iterdir()} == {
        "ehr.db",
        "source.toml",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "sq"', "kind='sq': did you mean 'sql'"),
        ('kind = "sql"', "url: missing"),
        ('kind = "sql"\nurl = "sqlite:///ehr.db"\npasword_file = "x"\nview = "v"', "did you mean 'password_file'"),
        ('kind = "sql"\nurl = "sqlite:///none.db"\nview = "v"', "there is no database file"),
        ('kind = "sql"\nurl = "nonsense"\nview = "v"', "url: not the address of a database"),
        ('kind = "sql"\nurl = "sqlite:///ehr.db"', "expected one of view, query and"),
        ('kind = "sql"\nurl = "sqlite:///ehr.db"\nview = "v"\nquery = "select 1"', "view and query: expected one of"),
        ('kind = "sql"\nurl = "sqlite:///ehr.db"\nquery = "drop table patients"', "begins with SELECT or WITH"),
        ('kind = "sql"\nurl = "sqlite:///ehr.db"\nview = "nobody"', "no such table: nobody"),
        ('kind = "sql"\nurl = "sqlite:///ehr.db"\nquery = "select age, age from patients"', "'age' is there twice"),
        ('kind = "sql"\nurl = "sqlite:///ehr.db"\nquery = "select x\'00\' as scan"', "column 'scan' holds bytes"),
        ('kind = "sql"\nurl = "sqlite:///ehr.db"\nquery = "select * from patients where age > 99"', "has no rows"),
        ('kind = "duckdb"\nquery = "select * from \'none.csv\'"', "DuckDB: .*none.csv"),
        ('kind = "duckdb"\nview = "v"\ndatabase = "none.duckdb"', "there is no file"),
        ('kind = "omop"', "url and folder: expected one of them"),
        ('kind = "omop"\nurl = "sqlite:///ehr.db"', "person: the records have no such table"),
        ('kind = "fhir"\nfolder = "."', "holds no .ndjson file"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_sentence(tmp_path, database, text, message):
    with pytest.raises(BadInput, match=message):
        read_rows(source(tmp_path, text))


def test_the_address_may_not_hold_the_password(tmp_path):
    for url in (
        "postgresql://reader:hunter2@127.0.0.1/ehr",
        "postgresql://reader@127.0.0.1/ehr?password=hunter2",
    ):
        path = source(tmp_path, f'kind = "sql"\nurl = "{url}"\nview = "v"\n')
        with pytest.raises(BadInput, match="holds a password") as refused:
            read_rows(path)
        assert "hunter2" not in str(refused.value)


def test_a_password_is_asked_for_where_it_is_named(tmp_path, monkeypatch):
    text = 'kind = "sql"\nurl = "postgresql://reader@127.0.0.1:9/ehr"\nview = "v"\n'
    monkeypatch.delenv("EHR_PASSWORD", raising=False)
    with pytest.raises(
        BadInput, match="password_variable='EHR_PASSWORD': the environment has no such variable"
    ):
        read_rows(source(tmp_path, text + 'password_variable = "EHR_PASSWORD"\n'))
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    secret.chmod(0o644)
    with pytest.raises(BadInput, match="other users may read it; run chmod 600"):
        read_rows(source(tmp_path, text + 'password_file = "secret"\n'))


def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path, monkeypatch):
    monkeypatch.setenv("EHR_PASSWORD", "hunter2")
    text = 'kind = "sql"\nurl = "postgresql://reader@127.0.0.1:9/ehr"\nview = "v"\npassword_variable = "EHR_PASSWORD"\n'
    with pytest.raises(
        BadInput, match=r"postgresql://reader@127.0.0.1:9/ehr: connection .*refused"
    ) as refused:
        read_rows(source(tmp_path, text))
    assert "hunter2" not in str(refused.value)


def test_duckdb_joins_files_in_memory(tmp_path):
    PATIENTS.to_csv(tmp_path / "patients.csv", index=False)
    pd.DataFrame({"patient id": [2], "died": ["yes"]}).to_parquet(tmp_path / "deaths.parquet")
    joined = "'patients.csv' LEFT JOIN 'deaths.parquet' USING (\"patient id\")"
    query = f"SELECT age, coalesce(died, 'no') AS died FROM {joined}"
    path = source(tmp_path, f'kind = "duckdb"\nquery = """{query}"""\n')
    before = {file.name for file in tmp_path.iterdir()}
    frame = read_rows(path)
    assert sorted(zip(frame["age"], frame["died"], strict=True)) == [(30, "no"), (31, "no"), (64, "yes")]
    assert {file.name for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ("'patients.csv'", True),
        ("read_csv('patients.csv', all_varchar = true)", False),
        ("read_csv('patients.csv', all_varchar = true) JOIN 'patients.csv' AS again USING (sex)", True),
        ("'patients.parquet'", False),
    ],
)
def test_types_that_duckdb_guesses_from_all_rows_are_not_paid_for(tmp_path, files, refused):
    PATIENTS.to_csv(tmp_path / "patients.csv", index=False)
    PATIENTS.to_parquet(tmp_path / "patients.parquet")
    path = source(tmp_path, f'kind = "duckdb"\nquery = """SELECT sex FROM {files}"""\n')
    column = {"name": "sex", "type": "categorical", "categories": ["F", "M"]}
    paid = Schema.from_dict(
        {"version": 1, "kind": "table", "columns": [column], "provenance": {"sex": "paid"}}
    )
    assert len(read_rows(path)) and len(read_rows(path, Schema(columns=paid.columns)))
    for reading in ({"as_written": True}, {"schema": paid}):
        if refused:
            with pytest.raises(BadInput, match="all_varchar = true"):
                read_rows(path, **reading)
        else:
            assert len(read_rows(path, **reading))


def test_duckdb_may_neither_spill_to_disk_nor_fetch_extensions(tmp_path):
    wanted = {"temp_directory": "spill", "autoinstall_known_extensions": "fetch"}
    query = "SELECT " + ", ".join(f"current_setting('{name}') AS {short}" for name, short in wanted.items())
    frame = read_rows(source(tmp_path, f'kind = "duckdb"\nquery = "{query}"\n'))
    assert frame.to_dict("records") == [{"spill": "", "fetch": False}]


def test_commands_take_a_source_and_keep_no_password(tmp_path, database, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source(tmp_path, 'kind = "sql"\nurl = "sqlite:///ehr.db"\nview = "patients"\n')
    with pytest.raises(SystemExit) as ended:
        main(["schema", "draft", "source.toml", "--client-column", "patient id", "--out", "schema.json"])
    assert ended.value.code in (0, None)
    drafted = json.loads(Path("schema.json").read_text())
    assert [column["name"] for column in drafted["columns"]] == ["age", "sex"]
    with pytest.raises(SystemExit) as ended:
        main(["schema", "check", "source.toml", "--schema", "schema.json"])
    assert ended.value.code in (0, None), capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_a_site_reads_its_rows_out_of_a_database(tmp_path, database):
    from fedsynth.deploy.site.site_file import SiteFile

    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    source(tmp_path, 'kind = "sql"\nurl = "sqlite:///ehr.db"\nview = "patients"\n')
    (tmp_path / "site.toml").write_text(
        '[data]\nfile = "source.toml"\nschema = "schema.json"\nclient_column = "patient id"\n'
        '[budget]\nepsilon = 3.0\ndelta = 1e-6\nunit = "client"\n'
        '[policy]\nrecipes = ["dpd_fvae"]\ntransports = ["clear"]\nminimum_cohort = 2\n'
        '[state]\nfolder = "state"\n'
    )
    assert SiteFile.load(tmp_path / "site.toml").holding().names == ("1", "2")
