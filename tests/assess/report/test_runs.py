import json
import os
import time
from dataclasses import replace

import pytest
from small_run import SIMULATION, make_run, scored

from fedsynth.assess.image_steps import FRECHET
from fedsynth.assess.report.run_pages import compare_page, list_page
from fedsynth.assess.report.runs import find_runs, scored_on_others, summary, why_not_compared
from fedsynth.assess.scores.score import Score, save_scores
from fedsynth.errors import BadInput


def unfinished(folder, name="going"):
    run = make_run(folder, name)
    for file in ("generator.safetensors", "privacy.json", "synthetic.parquet"):
        (run / file).unlink()
    (run / "recipe.toml").touch()
    return run


def test_runs_are_found_in_sub_folders_but_not_through_links(tmp_path):
    make_run(tmp_path, "a")
    make_run(tmp_path / "deeper", "b")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert sorted(path.name for path in find_runs(tmp_path).values()) == ["a", "b"]


def test_a_run_is_found_in_its_own_folder(tmp_path):
    assert list(find_runs(make_run(tmp_path)).values()) == [tmp_path / "run"]


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no such folder"):
        find_runs(tmp_path / "nowhere")


def test_a_finished_run_tells_its_promise_and_scores(tmp_path):
    run = make_run(tmp_path)
    scored().save(run)
    found = summary(run)
    assert (found.state, found.round, found.rounds) == ("finished", 3, 3)
    assert found.promise.startswith("client: ε") and found.private
    assert (found.pairs, found.useful, found.useful_real) == (0.88, 0.86, 0.9)


def test_an_unfinished_run_tells_round_loss_and_epsilon_so_far(tmp_path):
    run = unfinished(tmp_path)
    found = summary(run)
    assert (found.state, found.round, found.promise) == ("running", 3, "at most ε 8, δ 0.001")
    assert found.loss is not None and found.epsilon is not None


def test_a_run_that_wrote_nothing_for_long_is_taken_for_stopped(tmp_path):
    run = unfinished(tmp_path)
    for file in run.iterdir():
        os.utime(file, (time.time() - 1000, time.time() - 1000))
    assert summary(run).state == "stopped"


def test_a_torn_line_of_a_running_history_does_no_harm(tmp_path):
    run = unfinished(tmp_path)
    with (run / "history.jsonl").open("a") as file:
        file.write('{"version": 4, "lo')
    assert summary(run).round == 3


def test_a_broken_run_says_why_and_the_others_go_on(tmp_path):
    (make_run(tmp_path, "bad") / "recipe.toml").write_text("= no toml")
    make_run(tmp_path, "good")
    found = {run.name: run for run in (summary(path, key) for key, path in find_runs(tmp_path).items())}
    assert found["bad"].state == "broken" and "not valid TOML" in found["bad"].problem
    assert found["good"].state == "finished"


def test_a_simulation_has_no_promise(tmp_path):
    assert summary(make_run(tmp_path, **SIMULATION)).promise == "none: simulation"


def test_a_summary_is_json(tmp_path):
    assert json.loads(json.dumps(summary(make_run(tmp_path)).to_dict()))["state"] == "finished"


def test_the_list_shows_curves_of_unfinished_runs_only(tmp_path):
    make_run(tmp_path, "done")
    unfinished(tmp_path)
    paths = find_runs(tmp_path)
    text = list_page([summary(path, key) for key, path in paths.items()], paths)
    assert "going: loss" in text and "done: loss" not in text and "<progress" in text


def test_runs_side_by_side_have_a_disc_each(tmp_path):
    runs = [make_run(tmp_path, name) for name in ("one", "two")]
    for run in runs:
        scored().save(run)
    text = compare_page([summary(run, run.name) for run in runs])
    assert text.count('class="seat"') == 4  # faithful and useful


def test_runs_without_scores_are_compared_without_pictures(tmp_path):
    text = compare_page([summary(make_run(tmp_path), "a")])
    assert 'class="seat"' not in text and "No scores yet: " in text


def test_runs_scored_on_different_rows_are_not_drawn_together(tmp_path):
    runs = [make_run(tmp_path, name) for name in ("one", "two")]
    for place, run in enumerate(runs):
        evaluation = scored()
        useful = evaluation["gradient boosting: auc"]
        other = replace(useful, detail={**useful.detail, "test_rows": f"rows {place}"})
        save_scores([score for score in evaluation.scores if score != useful] + [other], run / "scores.json")
    summaries = [summary(run, run.name) for run in runs]
    assert scored_on_others(summaries, "test") == "one and two were scored on different test rows"
    assert scored_on_others(summaries, "real") is None
    text = compare_page(summaries)
    assert "one and two were scored on different test rows" in text and text.count('class="seat"') == 2


def test_an_unfinished_run_tells_when_and_how_long_it_takes(tmp_path):
    run = unfinished(tmp_path)
    line = '{"version": %d, "loss": 1.0, "seconds": 30, "epsilon": 1.0}\n'
    (run / "history.jsonl").write_text("".join(line % version for version in (1, 2)))
    found = summary(run)
    assert found.seconds_left == 30 and found.date[:2] == "20"
    assert "about 30 s left" in list_page([found], {found.key: run})


def measured(folder, name, weights):
    run = make_run(folder, name)
    setting = {"network": "lenet", "weights": weights}
    save_scores([Score(FRECHET, 12.5, "min", (0.0, 1e9), detail={"setting": setting})], run / "scores.json")
    return summary(run)


def test_image_scores_are_compared_in_one_setting_alone(tmp_path):
    first, same, other = (
        measured(tmp_path, name, weights) for name, weights in (("a", "1"), ("b", "1"), ("c", "2"))
    )
    assert why_not_compared([first, same]) is None and "12.500" in compare_page([first, same])
    assert "a and c" in why_not_compared([first, same, other])
    page = compare_page([first, other])
    assert "Image scores are not compared" in page and "12.500" not in page
