"""A kit's folder does not grow without end."""

import os
import time
import uuid

from fedsynth.deploy.nvflare import upkeep


def test_a_log_that_has_grown_is_rotated_under_its_writer_and_few_copies_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "MOST_BYTES", 10)
    with (tmp_path / "console.log").open("ab", buffering=0) as log:
        for number in range(6):
            log.write(b"line %d is long enough\n" % number)
            upkeep.tidy(tmp_path)
        log.write(b"short\n")
        upkeep.tidy(tmp_path)
    assert (tmp_path / "console.log").read_bytes() == b"short\n"
    copies = sorted(path.name for path in tmp_path.glob("console.log.*"))
    assert copies == ["console.log.1", "console.log.2", "console.log.3"]
    assert [(tmp_path / name).read_bytes()[:6] for name in copies] == [b"line 5", b"line 4", b"line 3"]


def test_the_logs_of_a_job_that_lives_for_weeks_are_rotated_too(tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "MOST_BYTES", 10)
    job = tmp_path / str(uuid.uuid4())
    job.mkdir()
    for name in ("audit.log", "error_log.txt", "log.json", "log.txt", "meta.json"):
        (job / name).write_bytes(b"a line that is long enough\n")
    upkeep.tidy(tmp_path)
    left = {path.name: path.stat().st_size for path in job.iterdir() if not path.name.endswith(".1")}
    assert left == {"audit.log": 0, "error_log.txt": 0, "log.json": 0, "log.txt": 0, "meta.json": 27}


def test_jobs_that_ended_long_ago_are_removed_and_nothing_else(tmp_path):
    jobs = tmp_path / "store" / "jobs"
    long_ago = time.time() - upkeep.KEPT_S - 60
    for number in range(upkeep.JOBS_KEPT + 4):
        job = jobs / str(uuid.uuid4())
        job.mkdir(parents=True)
        os.utime(job, (long_ago - number, long_ago - number))
    (tmp_path / "runs" / "20260101-0a").mkdir(parents=True)
    os.utime(tmp_path / "runs" / "20260101-0a", (long_ago, long_ago))
    upkeep.tidy(tmp_path)
    assert len(list(jobs.iterdir())) == upkeep.JOBS_KEPT and (tmp_path / "runs" / "20260101-0a").is_dir()
    fresh = [jobs / str(uuid.uuid4()) for _ in range(5)]
    for job in fresh:
        job.mkdir()
    upkeep.tidy(tmp_path)
    assert all(job.is_dir() for job in fresh)
