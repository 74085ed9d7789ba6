"""The pages in a real browser, at the width of a desk and of a phone, and on paper."""

import re
import shutil
from pathlib import Path

import pytest

from pulse_pyro.report.page import Section, write_report

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip(
        "no Chromium on this machine, so pages are not tested in a browser; Debian and Ubuntu "
        "have it: apt-get install chromium.",
        allow_module_level=True,
    )

import axe_playwright_python  # noqa: E402  (after the skip: neither is of use without a browser)
from playwright.sync_api import sync_playwright  # noqa: E402

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}

every_page = pytest.mark.parametrize("name", ["study", "targets", "failed", "crossfit"])
both_widths = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture
def show(browser):
    """Open a page at a size; what it says to the console, and asks for, is kept on it."""
    contexts = []

    def opened(path, size):
        contexts.append(browser.new_context(viewport=size))
        page = contexts[-1].new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(Path(path).as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


def overflow(page):
    """Pixels by which a page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def violations(page):
    """What axe-core finds, as rule and impact, and what it could not tell outside figures."""
    page.add_style_tag(content=".scroll { background: #fff !important }")  # shades puzzle it
    page.evaluate(AXE)
    found = page.evaluate("""async () => {
        const {violations, incomplete} = await axe.run();
        const told = violations.map(rule => [rule.id, rule.impact]);
        const open = incomplete.filter(rule => rule.nodes.some(node =>
            !document.querySelector(node.target[0]).closest("svg")));
        return [...told, ...open.map(rule => [rule.id, "not known"])];
    }""")
    return dict(found)


def pale_labels(page):
    """Labels of figures, which axe-core does not judge, that are not dark."""
    return page.evaluate("""() => [...document.querySelectorAll("svg text")].filter(text => {
        const dark = getComputedStyle(text).fill.match(/[\\d.]+/g).slice(0, 3);
        return Math.max(...dark) > 80;
    }).map(text => text.textContent)""")


@every_page
@both_widths
def test_it_opens_in_silence_fits_shows_every_figure_and_keeps_no_reader_out(
    pages, show, name, size
):
    page = show(pages[name], size)
    assert page.said == []
    assert page.asked == [pages[name].as_uri()]
    assert overflow(page) <= 0
    boxes = [figure.bounding_box() for figure in page.locator("figure svg").all()]
    assert len(boxes) == pages[name].read_text().count("<svg") > 0
    for box in boxes:
        assert box["width"] > 200
        assert box["height"] > 100
        assert box["x"] + box["width"] <= size["width"]
    inked = "svg => [...svg.querySelectorAll('path')].some(p => p.getBBox().width > 50)"
    assert all(figure.evaluate(inked) for figure in page.locator("figure svg").all())
    assert violations(page) == {}
    assert pale_labels(page) == []


def test_links_land(pages, show):
    page = show(pages["study"], PHONE)
    links = page.locator("nav a")
    assert links.count() == page.locator("h2").count() > 3
    for link in links.all():
        link.click()
        target = page.locator(f'[id="{link.get_attribute("href")[1:]}"]')
        assert target.inner_text() == link.inner_text()
        top = target.bounding_box()["y"]
        bottom = page.evaluate("scrollY + innerHeight >= document.body.scrollHeight - 2")
        assert -2 <= top <= 60 or (bottom and top < PHONE["height"])


@every_page
def test_it_prints(pages, show, name):
    page = show(pages[name], DESK)
    printed = page.pdf(format="A4")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 25
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 688, "height": 1000})  # A4 without its margins
    assert overflow(page) <= 0
    wide = "box => box.scrollWidth - box.clientWidth"
    assert all(box.evaluate(wide) <= 1 for box in page.locator(".scroll").all())


def test_on_a_phone_sentences_of_a_table_are_in_sight_and_wide_tables_scroll(pages, show):
    page = show(pages["failed"], PHONE)
    for cell in page.locator("td.long").all():
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    wide = "box => box.scrollWidth > box.clientWidth"
    box = next(box for box in page.locator(".scroll").all() if box.evaluate(wide))
    box.focus()
    page.keyboard.press("ArrowRight")
    moved = "[...document.querySelectorAll('.scroll')].some(box => box.scrollLeft > 0)"
    page.wait_for_function(moved, timeout=3000)


def test_a_page_that_is_wrong_is_noticed(tmp_path, show):
    path = write_report(tmp_path / "page.html", "Title", "Verdict", [Section("One", "Text.")])
    spoilt = path.read_text().replace(
        "</main>",
        '<div style="width:3000px">wide</div><p style="color:#bbb">pale</p><svg role="img">'
        '<text fill="#ccc">faint</text></svg>'
        "<script>console.error('no')</script></main>",
    )
    path.write_text(spoilt)
    page = show(path, PHONE)
    assert page.said == ["no"]
    assert overflow(page) > 0
    assert pale_labels(page) == ["faint"]
    assert {"color-contrast": "serious", "svg-img-alt": "serious"}.items() <= violations(
        page
    ).items()
