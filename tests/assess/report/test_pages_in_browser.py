import threading
from dataclasses import replace

import pytest
from small_run import SCHEMA, browser, make_run, scored, wide
from test_labelling import findings

from fedsynth.api import plan
from fedsynth.assess.report.inspection import inspection_page
from fedsynth.assess.report.internal import write_report
from fedsynth.assess.report.labelling import labelling_page
from fedsynth.assess.report.plan_plot import save_plot
from fedsynth.assess.report.public import write_public
from fedsynth.assess.report.record import RunRecord
from fedsynth.assess.report.runs import find_runs
from fedsynth.assess.report.server import open_server
from fedsynth.data.schema import Schema

BOUND = {"epsilon_lower": 1.2, "confidence": 0.95, "method": "white box"}
AUDIT = {**BOUND, "white_box": BOUND, "one_run": {**BOUND, "epsilon_lower": 0.8, "method": "one run"}}
PAGES = ("report", "public", "list", "compare", "wide", "plan", "inspection", "labels")
PHONE = 390


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Addresses of all pages: two from disk, two from the local server."""
    folder = tmp_path_factory.mktemp("pages")
    run = make_run(folder)
    scored().save(run)
    record = RunRecord.read(run, scored())
    statement = replace(record.released.statement, audited=AUDIT)
    write_report(replace(record, released=replace(record.released, statement=statement)), run / "report.html")
    write_report(replace(record, evaluation=wide()), run / "wide.html")
    write_public(run)
    plans = plan(
        Schema.from_dict(SCHEMA), clients=6000, records=6000, epsilon=1, delta=1e-6, recipe="marginals"
    )
    farther = [plans.main.projected(count) for count in (6_000, 100_000, 1_000_000)]
    save_plot(run / "plan.html", plans, farther)
    for name, text in (("inspection", inspection_page(findings())), ("labels", labelling_page(findings()))):
        (run / f"{name}.html").write_text(text, encoding="utf-8")
    going = make_run(folder, "going")
    (going / "generator.safetensors").unlink()
    server, address = open_server(folder, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    keys = "&".join(f"run={key}" for key in find_runs(folder))
    yield {
        "report": (run / "report.html").as_uri(),
        "public": (run / "public.html").as_uri(),
        "wide": (run / "wide.html").as_uri(),
        "plan": (run / "plan.html").as_uri(),
        "inspection": (run / "inspection.html").as_uri(),
        "labels": (run / "labels.html").as_uri(),
        "list": address,
        "compare": f"{address}compare?{keys}",
        "served report": f"{address}run/{next(k for k, p in find_runs(folder).items() if p == run)}/report.html",
    }
    server.shutdown()
    server.server_close()


@pytest.fixture
def visit(chromium, places):
    """Opens a page and keeps what went wrong and what it asked for."""
    opened = []

    def go(name, width=1280, scheme="light"):
        page = chromium.new_page()
        opened.append(page)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.problems, page.asked = [], []
        page.on(
            "console",
            lambda said: page.problems.append(said.text) if said.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(places[name])
        return page

    yield go
    for page in opened:
        page.close()


@pytest.mark.parametrize("name", [*PAGES, "served report"])
def test_a_page_loads_without_errors_and_asks_nobody_else(visit, places, name):
    page = visit(name)
    if name in ("list", "compare"):  # a live page asks for news meanwhile
        with page.expect_response(places[name], timeout=60_000):
            pass
    assert page.problems == []
    assert set(page.asked) <= {places[name]}


ALIKE = """() => {
  for (const [parts, kept] of [["figure[data-column]", 3], [".maps svg rect", 60], ["tbody tr", 40]]) {
    [...document.querySelectorAll(parts)].slice(kept).forEach((each) => each.remove());
  }
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible(visit, name, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs pip install axe-playwright-python"
    )
    page = visit(name, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    if name == "wide":  # thousands of parts that are alike take axe minutes
        page.evaluate(ALIKE)
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_phone(visit, name):
    page = visit(name, width=PHONE)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE


@pytest.mark.parametrize("width", [PHONE, 1280])
@pytest.mark.parametrize("name", ["report", "wide"])
def test_letters_in_pictures_have_one_size_on_every_screen(visit, name, width):
    """As drawn: the size that a style gives, times how much the picture is scaled."""
    sizes = visit(name, width=width).evaluate(
        """[...new Set([...document.querySelectorAll('figure svg text')].map((text) => {
            const scale = text.ownerSVGElement.getScreenCTM().a;
            return (parseFloat(getComputedStyle(text).fontSize) * scale).toFixed(1);
        }))]"""
    )
    assert sizes == ["12.0"]


CONTRASTS = """() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(Number).slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const seen = (mark) => {
    const style = getComputedStyle(mark);
    const drawn = style.stroke !== "none" ? style.stroke : style.fill;
    return drawn;
  };
  const kinds = ["synthetic", "real-line", "claim", "audit", "attack", "curve", "limit", "fill", "with", "against",
                 "cross", "synthetic-dot", "whisker", "guess", "synthetic-point", "real-ring", "strokes rect"];
  const worst = {};
  for (const kind of kinds) {
    for (const mark of document.querySelectorAll(`figure .${kind}`)) {
      const behind = getComputedStyle(mark.closest("figure")).backgroundColor;
      worst[kind] = Math.min(worst[kind] ?? 99, ratio(seen(mark), behind));
    }
  }
  const [bar, line] = ["synthetic", "real-line"].map((kind) => document.querySelector(`figure .${kind}`));
  worst["line on bars"] = ratio(getComputedStyle(bar).fill, getComputedStyle(line).stroke);
  return worst;
}"""


@pytest.mark.parametrize(("media", "scheme"), [("screen", "light"), ("screen", "dark"), ("print", "dark")])
def test_marks_in_pictures_stand_out_three_to_one(visit, media, scheme):
    """WCAG 2.2, 1.4.11: also inside pictures, and the real line where it runs over synthetic bars."""
    page = visit("report")
    page.emulate_media(media=media, color_scheme=scheme)
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) >= 15
    assert {kind: ratio for kind, ratio in contrasts.items() if ratio < 3} == {}


def test_paper_shows_what_is_folded_and_the_whole_sample(visit):
    page = visit("wide")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    cut = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter((e) => getComputedStyle(e).overflowX === 'auto').length"
    )
    assert cut == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_columns_are_found_by_a_part_of_their_name(visit):
    page = visit("wide")
    page.get_by_role("searchbox").fill("PLAN_17")
    page.get_by_text("1 found").wait_for()
    assert page.locator("figure[data-column]:visible").count() == 1
    page.get_by_role("searchbox").fill("")
    page.locator("figure[data-column]:visible").nth(56).wait_for()


def test_the_chapters_stay_in_reach_and_the_content_is_one_key_away(visit):
    page = visit("wide")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.evaluate("scrollTo({ top: 5000, behavior: 'instant' })")
    assert page.locator("nav.jump").bounding_box()["y"] == 0


def test_labels_of_a_map_and_summaries_differ(visit):
    page = visit("wide")
    labels = page.locator(".maps figure").first.locator("svg text").all_text_contents()
    assert len(labels) == 64 and len(set(labels)) == 32
    summaries = page.locator("summary").all_text_contents()
    assert len(set(summaries)) == len(summaries)


def test_every_square_of_a_map_is_in_a_table_too(visit):
    page = visit("report")
    page.get_by_role("region", name="Relationships that changed most").get_by_text("age and ill").wait_for()
    table = page.get_by_role("region", name="Relationships that changed most").inner_text()
    assert "0.50" in table and "-0.20" in table and "-0.70" in table


def test_every_plot_has_marks(visit):
    page = visit("report")
    shapes = page.evaluate(
        "[...document.querySelectorAll('figure svg')].map((svg) => svg.querySelectorAll('rect, path, circle').length)"
    )
    assert len(shapes) >= 15 and min(shapes) > 0
    for kind in (
        "synthetic",
        "real-line",
        "claim",
        "audit",
        "attack",
        "strokes",
        "against",
        "curve",
        "limit",
        "cross",
    ):
        assert page.locator(f"figure .{kind}").count() > 0, kind


@pytest.mark.parametrize("name", ["report", "wide", "plan"])
def test_numbers_along_an_axis_do_not_touch(visit, name):
    touching = visit(name).evaluate(
        """[...document.querySelectorAll('figure svg')].flatMap((svg) => {
            const numbers = [...svg.querySelectorAll('text.tick:not([transform])')];
            const boxes = numbers.map((text) => [text.textContent, text.getBBox()]);
            return boxes.flatMap(([words, a], i) => boxes.slice(i + 1)
                .filter(([, b]) => Math.abs(a.y - b.y) < 1 && a.x < b.x + b.width && b.x < a.x + a.width)
                .map(([other]) => `${words} | ${other}`));
        })"""
    )
    assert touching == []


def test_pointing_at_a_bar_tells_its_value(visit):
    page = visit("report")
    tip = page.locator("#tip")
    tip.wait_for(state="hidden")
    page.locator("figure .hits rect").first.hover()
    tip.wait_for(state="visible")
    assert tip.inner_text() == "0 to 50: real 50%, synthetic 70%"
    page.mouse.move(1, 1)
    tip.wait_for(state="hidden")


def test_a_tip_stays_on_the_screen(visit):
    page = visit("report", width=360)
    page.locator("figure .hits rect").last.hover()
    page.locator("#tip").wait_for(state="visible")
    box = page.locator("#tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360


def test_dark_is_dark_and_print_is_light(visit):
    page = visit("report", scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(17, 22, 29)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(background) == "rgb(255, 255, 255)"


def test_nothing_ticked_is_told(visit, places):
    page = visit("list")
    page.get_by_role("button").click()
    page.get_by_text("No run was ticked").wait_for()


def test_two_runs_can_be_chosen_and_compared(visit, places):
    page = visit("list")
    for box in page.locator("input[type=checkbox]").all():
        box.check()
    with page.expect_response(
        places["list"], timeout=60_000
    ):  # the list updates: what is ticked stays ticked
        pass
    assert page.locator("input:checked").count() == 2
    page.get_by_role("button").click()
    page.get_by_role("heading", name="Runs side by side").wait_for()
    assert page.locator(".seat").count() > 0


def test_the_list_follows_a_running_run(visit, places, tmp_path_factory):
    page = visit("list")
    going = next(tmp_path_factory.getbasetemp().glob("pages*/going"))
    with (going / "history.jsonl").open("a") as file:
        line = '{"version": 77, "loss": 1.5, "seconds": 1, "clients": 9, "dropped": 2, "epsilon": 7.5}\n'
        file.write(line)
    page.get_by_text("77 of 3").wait_for()
