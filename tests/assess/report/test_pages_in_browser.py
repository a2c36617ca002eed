import threading
from dataclasses import replace

import pytest
from small_run import browser, make_run, scored

from fedsynth.assess.report.internal import write_report
from fedsynth.assess.report.public import write_public
from fedsynth.assess.report.record import Record
from fedsynth.assess.report.runs import find_runs
from fedsynth.assess.report.server import open_server

BOUND = {"epsilon_lower": 1.2, "confidence": 0.95, "method": "white box"}
AUDIT = {**BOUND, "white_box": BOUND, "one_run": {**BOUND, "epsilon_lower": 0.8, "method": "one run"}}
PAGES = ("report", "public", "list", "compare")


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
    record = Record.read(run, scored())
    statement = replace(record.released.statement, audited=AUDIT)
    write_report(replace(record, released=replace(record.released, statement=statement)), run / "report.html")
    write_public(run)
    going = make_run(folder, "going")
    (going / "generator.safetensors").unlink()
    server, address = open_server(folder, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    keys = "&".join(f"run={key}" for key in find_runs(folder))
    yield {
        "report": (run / "report.html").as_uri(),
        "public": (run / "public.html").as_uri(),
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

    def go(name, width=1200, scheme="light"):
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
    page.wait_for_timeout(2300 if name in ("list", "compare") else 100)  # a live page asks for news meanwhile
    assert page.problems == []
    assert set(page.asked) <= {places[name]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible(visit, name, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs pip install axe-playwright-python"
    )
    page = visit(name, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_phone(visit, name):
    page = visit(name, width=360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_every_plot_has_marks(visit):
    page = visit("report")
    shapes = page.evaluate(
        "[...document.querySelectorAll('figure svg')].map((svg) => svg.querySelectorAll('rect, path, circle').length)"
    )
    assert len(shapes) >= 10 and min(shapes) > 0
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


def test_pointing_at_a_bar_tells_its_value(visit):
    page = visit("report")
    assert page.locator("#tip").is_hidden()
    page.locator("figure .hits rect").first.hover()
    assert page.locator("#tip").is_visible()
    assert page.locator("#tip").inner_text() == "0 to 50: real 50%, synthetic 70%"
    page.mouse.move(1, 1)
    assert page.locator("#tip").is_hidden()


def test_a_tip_stays_on_the_screen(visit):
    page = visit("report", width=360)
    page.locator("figure .hits rect").last.hover()
    box = page.locator("#tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360


def test_dark_is_dark_and_print_is_light(visit):
    page = visit("report", scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(17, 22, 29)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(background) == "rgb(255, 255, 255)"


def test_two_runs_can_be_chosen_and_compared(visit):
    page = visit("list")
    for box in page.locator("input[type=checkbox]").all():
        box.check()
    page.wait_for_timeout(2300)  # the list renews itself: what is ticked stays ticked
    assert page.locator("input:checked").count() == 2
    page.get_by_role("button").click()
    assert page.get_by_role("heading", name="Runs side by side").is_visible()
    assert page.locator(".seat").count() > 0


def test_the_list_follows_a_running_run(visit, places, tmp_path_factory):
    page = visit("list")
    going = next(tmp_path_factory.getbasetemp().glob("pages*/going"))
    with (going / "history.jsonl").open("a") as file:
        line = '{"version": 77, "loss": 1.5, "seconds": 1, "clients": 9, "dropped": 2, "epsilon": 7.5}\n'
        file.write(line)
    page.get_by_text("77 of 3").wait_for(timeout=30_000)
