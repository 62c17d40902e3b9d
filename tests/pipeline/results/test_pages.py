"""The page of results, in a real browser: from disk, by keyboard, by light and by dark.

What the page holds comes from a run with the fake engine, some of whose answers are hostile.
"""

import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Request
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import report
from factsweep.pipeline.stages.plan import Plan

DRAWN = True
HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
)
Settings = Callable[..., Run]
Compute = Callable[..., Plan]


class Hostile(FakeEngine):
    """Says markup to every prompt."""

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        for answer in super().answers(requests):
            completions = tuple(
                replace(completion, text=HOSTILE) for completion in answer.completions
            )
            yield replace(answer, completions=completions)


@pytest.fixture(scope="module")
def results(
    small: list[str], compute_here: Compute, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Runs of two settings and of one, the second with hostile answers and code from the hub."""
    folder = tmp_path_factory.mktemp("pages")
    common = [*small, f"artifacts={folder}/artifacts", f"results={folder}/results"]
    two = ["sweep.prompts=[zero-shot,4-relation]", "decoding.samples.n_prompts=13"]
    plain = load([*common, *two, "run_name=plain"])
    report.write(compute_here(plain), {"total": 0})
    hostile = load(
        [
            *common,
            "prompt=4-template",
            "run_name=hostile",
            "model.name=hostile",
            "model.trust_remote_code=true",
            "decoding.samples.n_prompts=0",
            f"artifacts={folder}/other",
        ]
    )
    report.write(compute_here(hostile, Hostile()), {"total": 0})
    assert main(["report", f"results={folder / 'results'}"]) == 0
    return folder / "results"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Debian's Chromium without a window, its console and its requests on record."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
        *("disable-background-networking", "disable-component-update", "disable-sync"),
        f"user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    driver_session = webdriver.Chrome(options=options, service=service)
    yield driver_session
    driver_session.quit()


def opened(browser: Any, page: Path, *, width: int = 1280, scheme: str = "light") -> None:
    """Opens a page from disk and waits for its facts."""
    wait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    for log in ("browser", "performance"):
        browser.get_log(log)  # what came before is another page's
    browser.get(page.as_uri())
    ready = "return document.getElementById('count').textContent.endsWith('facts')"
    wait(browser, 20).until(lambda session: session.execute_script(ready))


@pytest.mark.browser
def test_page_opens_from_disk_without_error_or_request(browser: Any, results: Path) -> None:
    page = results / "plain" / "index.html"
    opened(browser, page)
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert page.as_uri() in urls
    assert [url for url in urls if not url.startswith(("file:", "data:"))] == []
    assert {url for url in urls if url.startswith("file:")} == {page.as_uri()}


@pytest.mark.browser
def test_page_search_by_keyboard_alone_shows_a_subjects_answers(
    browser: Any, results: Path
) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    chains = pytest.importorskip("selenium.webdriver").ActionChains
    opened(browser, results / "plain" / "index.html")
    focused = "return document.activeElement.id || document.activeElement.tagName"
    for _ in range(60):
        chains(browser).send_keys(keys.TAB).perform()
        if browser.execute_script(focused) == "query":
            break
    chains(browser).send_keys("ghana").perform()
    assert browser.execute_script("return document.getElementById('count').textContent") == (
        "1 of 13 facts"
    )
    while browser.execute_script(focused) != "SUMMARY":
        chains(browser).send_keys(keys.TAB).perform()
    chains(browser).send_keys(keys.ENTER).perform()
    wait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait
    script = "return document.querySelector('.fact[open] .body')?.innerText ?? ''"
    text = wait(browser, 10).until(lambda session: session.execute_script(script))
    assert "Right answer: Africa" in text
    assert "Ghana lies in [MASK]." in text


@pytest.mark.browser
def test_page_hostile_answers_are_shown_as_text(browser: Any, results: Path) -> None:
    opened(browser, results / "hostile" / "index.html")
    browser.execute_script("document.querySelector('.fact').open = true")
    waited = "return document.querySelector('.fact .body')?.innerText ?? ''"
    wait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait
    text = wait(browser, 10).until(lambda session: session.execute_script(waited))
    assert HOSTILE in text
    assert browser.title == "hostile on myriadlama-mini"
    assert browser.execute_script("return document.querySelectorAll('main img').length") == 0


@pytest.mark.browser
def test_page_dark_scheme_changes_background_and_figures(browser: Any, results: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        opened(browser, results / "plain" / "index.html", scheme=scheme)
        colours.append(
            browser.execute_script(
                "return [getComputedStyle(document.body).backgroundColor,"
                " getComputedStyle(document.querySelector('figure svg text')).fill]"
            )
        )
    light, dark = colours
    assert light[0] == "rgb(255, 255, 255)"
    assert all(
        light_colour != dark_colour for light_colour, dark_colour in zip(light, dark, strict=True)
    )


@pytest.mark.browser
def test_page_searched_fact_shows_its_prompt_in_full_with_all_samples(
    browser: Any, results: Path
) -> None:
    opened(browser, results / "plain" / "index.html")
    search = """
      const query = document.getElementById('query');
      query.value = 'Ghana';
      query.dispatchEvent(new Event('input'));
      document.querySelector('.fact').open = true;
    """
    browser.execute_script(search)
    wait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait
    script = "return [...document.querySelectorAll('.fact[open] .full')].length"
    wait(browser, 10).until(lambda session: session.execute_script(script) > 0)
    browser.execute_script("document.querySelectorAll('.full').forEach(each => each.open = true)")
    text = browser.execute_script("return document.querySelector('.fact[open]').innerText")
    assert "Predict the [MASK] in each sentence in one word.\nQ: " in text
    samples = results.parent / "artifacts" / "samples"
    sample_rows = pl.concat(
        [pl.read_parquet(path) for path in samples.glob("*/samples/P30.parquet")]
    )
    ghana_rows = sample_rows.filter(
        pl.col("prompt_id").str.starts_with("P30.Q1.")
    )  # Ghana is the second
    assert ghana_rows.height > 0
    for sample in ghana_rows.explode("texts")["texts"].unique():
        assert " ".join(sample.split()) in " ".join(text.split())
    assert "samples, " in text


CUT = """
  document.querySelectorAll('main details').forEach((each) => { each.open = true; });
  const width = document.documentElement.clientWidth;
  const cut = [];
  for (const each of document.querySelectorAll('main table, main td, main th, main pre, main dl')) {
    const { left, right, width: own } = each.getBoundingClientRect();
    if (own && (left < 0 || right > width + 0.5)) cut.push(each.outerHTML.slice(0, 100));
  }
  for (const each of document.querySelectorAll('main .scroll'))
    if (each.scrollWidth > each.clientWidth + 1) cut.push(each.getAttribute('aria-label'));
  return cut;
"""


@pytest.mark.browser
def test_page_is_no_wider_than_its_window_and_on_a_phone_no_column_is_cut_off(
    browser: Any, results: Path
) -> None:
    pages = ["plain/index.html", "report/myriadlama-mini/index.html"]
    for page, width in itertools.product(pages, (390, 1280)):
        opened(browser, results / page, width=width)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for page in (*pages, "hostile/index.html"):
        opened(browser, results / page, width=390)
        assert browser.execute_script(CUT) == []
        cell = "document.querySelector('#headline td'), '::before'"
        heading = browser.execute_script(f"return getComputedStyle({cell}).content")
        assert heading.strip('"') in {"zero-shot", "4-template", "hostile 4-template"}


class _Text(HTMLParser):
    """The text of a page, by the id of the section that it stands in."""

    def __init__(self) -> None:
        super().__init__()
        self.sections: dict[str, str] = {}
        self._section = "header"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section":
            self._section = dict(attrs).get("id") or ""

    def handle_data(self, data: str) -> None:
        self.sections[self._section] = self.sections.get(self._section, "") + data


def sections(page: Path) -> dict[str, str]:
    parser = _Text()
    parser.feed(page.read_text("utf-8"))
    return parser.sections


def test_page_of_a_run_says_what_was_run_and_warns_of_foreign_code(results: Path) -> None:
    plain, hostile = (sections(results / name / "index.html") for name in ("plain", "hostile"))
    assert "trust_remote_code is on for hostile" in hostile["header"]
    assert "trust_remote_code is on" not in plain["header"]
    for heading in ("factsweep commit", "versions", "core-hours", "prompts without an answer"):
        assert heading in plain["run"], heading
    assert plain.keys() >= {"headline", "figures", "relations", "templates", "facts", "tables"}
    assert "comparisons" not in hostile  # of one setting there is nothing to compare


def test_page_compares_its_settings_in_a_section(results: Path) -> None:
    section = sections(results / "plain" / "index.html")["comparisons"]
    assert "demonstrations" in section
    assert "13720 and 0 prompts" in " ".join(section.split())
    raw = pl.read_parquet(results / "plain" / "effects.parquet")
    assert set(raw["metric"]) >= {"acc_at_1", "consist"}
    assert raw["p"].drop_nulls().is_between(0, 1).all()


def test_page_of_several_runs_has_a_column_each_and_the_index_lists_it(results: Path) -> None:
    folder = results / "report"
    page = sections(folder / "myriadlama-mini" / "index.html")
    for run in ("tiny zero-shot", "hostile 4-template"):
        assert run in page["headline"]
        assert run in page["relations"]
    assert 'href="myriadlama-mini/index.html"' in (folder / "index.html").read_text()
