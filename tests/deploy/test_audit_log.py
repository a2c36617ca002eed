from fedsynth.deploy.site.activity_log import ActivityLog


def test_what_was_noted_is_chained_and_survives_a_restart(tmp_path):
    path = tmp_path / "audit.jsonl"
    ActivityLog(path).note("began", run="r")
    ActivityLog(path).note("refused", reason="no")
    assert [line["what"] for line in ActivityLog(path).lines()] == ["began", "refused"] and ActivityLog(
        path
    ).verify() == []
    path.write_text(path.read_text().replace("refused", "granted"))
    assert ActivityLog(path).verify()


def test_a_line_that_was_never_finished_is_cut_off(tmp_path):
    path = tmp_path / "audit.jsonl"
    audit = ActivityLog(path)
    audit.note("one")
    with path.open("ab") as file:
        file.write(b'{"what":"tw')
    audit.note("three")
    assert [line["what"] for line in audit.lines()] == ["one", "three"] and audit.verify() == []
    with path.open("ab") as file:
        file.write(b'{"what":')
    later = ActivityLog(path)
    later.note("four")
    assert later.verify() == [] and len(later.lines()) == 3
