"""The explorer in a browser: what a person sees, sorts and filters by, with mouse, keyboard and on a narrow screen.

``make browser`` installs the browser. The tests are skipped if it is not installed.
"""

import re
import shutil

import numpy as np
import pytest
import torch
from scipy.spatial import ConvexHull

from creinn.credal.credal_set import CredalSet
from creinn.report.explorer import Samples, explore
from creinn.report.page import Section, write_page
from explorer_cases import CLASSES, credal_sets, image_samples, table_samples

pytest.importorskip("selenium", reason="selenium is not installed")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

FLAGS = """headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking
disable-component-update disable-sync disable-dev-shm-usage hide-scrollbars"""
TABLE, IMAGES = table_samples(), image_samples()
CHOOSE_CORNERS = """(() => {
  const selects = [...document.querySelectorAll(".corners select")];
  selects.forEach((select, place) => { select.value = arguments[0][place]; });
  selects[0].dispatchEvent(new Event("change", { bubbles: true }));
  return document.querySelector("[data-part=drawn]").textContent;
}).apply(null, arguments)"""


class Page:
    """A page in the browser, by what a person would look for."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path, width=1200, scheme="light"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(path.as_uri())
        return self

    def run(self, script, *arguments):
        return self.driver.execute_script(f"return {script}", *arguments)

    def part(self, name):
        return self.driver.find_element(By.CSS_SELECTOR, f"[data-part={name}]")

    def texts(self, selector):
        return self.run(
            "[...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector
        )

    @property
    def names(self):
        return self.texts("[data-part=rows] .column-name")

    def sort(self, column):
        self.driver.find_element(By.CSS_SELECTOR, f"th.column-{column} button").click()

    def choose(self, name, text):
        Select(self.driver.find_element(By.NAME, name)).select_by_visible_text(text)

    def show(self, name):
        script = "[...document.querySelectorAll('[data-part=rows] button')].find((b) => b.textContent === arguments[0])"
        button = self.run(script, name)
        self.run("arguments[0].scrollIntoView({ block: 'center' })", button)
        button.click()

    def press(self, *keys):
        webdriver.ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def corners(self, *values):
        """Choose corners of the triangle, top, left and right; gives the sentence under it."""
        return self.run(CHOOSE_CORNERS, list(map(str, values)))

    def polygon(self):
        """The vertices that are drawn, as probabilities ``(n, 3)`` of the corners."""
        text = self.run("document.querySelector('polygon.set').getAttribute('points')")
        x, y = np.array([point.split(",") for point in text.split()], dtype=float).T
        top, difference = (232 - y) / 208, (x - 150) / 120
        return np.stack([top, (1 - top - difference) / 2, (1 - top + difference) / 2], 1)

    def errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    binary = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("Chromium and chromedriver are not both installed: make browser")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS.split(), f"user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    session = webdriver.Chrome(
        options, webdriver.ChromeService(driver)
    )  # with both paths nothing is looked for
    yield Page(session)
    session.quit()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    page = [
        Section("Explore predictions", [explore([TABLE, IMAGES], CLASSES)]),
        Section("Other", ["text"]),
    ]
    return write_page(tmp_path_factory.mktemp("page") / "r.html", "Title", page)


@pytest.fixture
def page(browser, path):
    yield browser.open(path)
    assert browser.errors() == []


def numbers(name):
    """A measure of all samples, with their names, in the order of the page."""
    values = [*getattr(TABLE.prediction, name).tolist(), *getattr(IMAGES.prediction, name).tolist()]
    return dict(zip([*TABLE.names, *IMAGES.names], values, strict=True))


@pytest.mark.parametrize(
    ("column", "name"), [("AU", "aleatoric"), ("EU", "epistemic"), ("TU", "total")]
)
def test_columns_sort(page, column, name):
    values = {key: round(value, 6) for key, value in numbers(name).items()}
    page.sort("name")
    assert page.names == list(values)
    page.sort(column)
    assert page.names == sorted(values, key=values.get, reverse=True)
    assert page.texts(f"td.column-{column}") == [
        f"{value:.3f}" for value in sorted(values.values(), reverse=True)
    ]
    script = "document.querySelector('th.column-' + arguments[0]).ariaSort"
    assert page.run(script, column) == "descending"
    page.sort(column)
    assert page.names == sorted(values, key=values.get)


def test_filters(page):
    page.sort("name")
    right = (TABLE.prediction.label == TABLE.labels).tolist()
    sizes = [
        *TABLE.prediction.classes("maximality").sum(1),
        *IMAGES.prediction.classes("maximality").sum(1),
    ]
    every = [*TABLE.names, *IMAGES.names]
    page.choose("right", "wrong")
    wrong = [name for name, is_right in zip(TABLE.names, right, strict=True) if not is_right]
    assert page.names == wrong
    assert page.part("count").text == f"{len(wrong)} of 42 samples"
    page.choose("truth", CLASSES[2])
    assert page.names == [name for name in wrong if TABLE.labels[TABLE.names.index(name)] == 2]
    page.part("reset").click()
    assert page.names == every
    page.choose("size", "2")
    assert page.names == [name for name, size in zip(every, sizes, strict=True) if size == 2]
    page.choose("data", "photographs (out of distribution)")
    twelve = zip(IMAGES.names, sizes[30:], strict=True)
    assert page.names == [name for name, size in twelve if size == 2]
    page.choose("size", "all")
    page.choose("label", CLASSES[3])
    predicted = zip(IMAGES.names, IMAGES.prediction.label.tolist(), strict=True)
    assert page.names == [name for name, label in predicted if label == 3]


def test_click_shows_sample(page):
    page.show("row 5")
    assert page.part("title").text == "row 5"
    assert page.part("facts").text.startswith(
        f"test.csv (in distribution); true class {CLASSES[TABLE.labels[4]]};"
    )
    cells = page.texts("[data-part=cells] th, [data-part=cells] td")
    assert cells == ["height", "0.4", "colour", "blue"]
    page.part("close").click()
    page.show(IMAGES.names[3])
    assert page.run("document.querySelector('[data-part=picture] img').naturalWidth") == 8
    assert not page.part("cells").is_displayed()
    assert not page.part("width").is_displayed()


def test_intervals_and_missing_values(page):
    sizes = TABLE.prediction.classes("maximality").sum(1).tolist()
    for number in (sizes.index(1), sizes.index(3)):
        page.show(TABLE.names[number])
        found = TABLE.prediction[number]
        lower, upper, label = found.lower.numpy(), found.upper.numpy(), int(found.label)
        kept = found.classes("maximality").tolist()
        cells = [
            page.texts(f"[data-part=intervals] tr > :nth-child({column})") for column in (1, 3, 4)
        ]
        for k, (name, bounds, verdict) in enumerate(zip(*cells, strict=True)):
            assert name == CLASSES[k]
            assert [float(bound) for bound in bounds.split()[::2]] == pytest.approx(
                [lower[k], upper[k]], abs=6e-4
            )
            if k == label:
                assert verdict == "predicted"
            else:  # min over the set of q_label - q_k is lower[label] - upper[k]
                assert verdict.startswith("could lead by" if kept[k] else "ruled out by")
                assert float(verdict.split()[-1]) == pytest.approx(
                    abs(upper[k] - lower[label]), abs=6e-4
                )
        for k, bar in enumerate(page.driver.find_elements(By.CLASS_NAME, "bar")):
            track = bar.find_element(By.XPATH, "..").rect
            assert (bar.rect["x"] - track["x"]) / track["width"] == pytest.approx(
                lower[k], abs=0.01
            )
            assert bar.rect["width"] / track["width"] == pytest.approx(
                upper[k] - lower[k], abs=0.01
            )
        other = max((k for k in range(5) if k != label), key=upper.__getitem__)
        lead, said = upper[other] - lower[label], page.part("decision").text
        if kept.count(True) == 1:
            assert f"except “{CLASSES[label]}”" in said
            assert f"{-lead:.3f}" in said
        else:
            assert f": {', '.join(f'“{name}”' for name in np.array(CLASSES)[kept])}." in said
            assert f"“{CLASSES[other]}” is {upper[other]:.3f}" in said
            assert f"{lead:.3f}" in said
        page.part("close").click()


def test_width_slider(page):
    page.show("row 7")
    slider = page.driver.find_element(By.CSS_SELECTOR, "input[type=range]")
    slider.click()
    slider.send_keys(Keys.HOME)
    for said, prediction in TABLE.widths.items():
        found = prediction[6]
        assert page.run("document.querySelector('.width output').value") == said
        assert slider.get_attribute("aria-valuetext") == said
        assert f"EU {found.epistemic:.3f}" in page.part("decision").text
        uppers = [float(text.split()[-1]) for text in page.texts("[data-part=intervals] .number")]
        assert uppers == pytest.approx(found.upper.tolist(), abs=6e-4)
        slider.send_keys(Keys.ARROW_RIGHT)
    assert page.part("title").text == "row 7"  # the arrow moved the slider alone


def test_keyboard_navigation(page):
    values = {key: round(value, 6) for key, value in numbers("total").items()}
    order = sorted(values, key=values.get, reverse=True)
    page.run("document.querySelector('th.column-TU button').focus()")
    page.press(Keys.TAB)
    assert page.driver.switch_to.active_element.text == order[0]
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.run(outline) == "solid"
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ENTER)
    assert page.part("title").text == order[1]
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.part("title").text == order[3]
    page.press(Keys.ARROW_LEFT)
    assert page.part("title").text == order[2]
    page.press(Keys.TAB)
    assert page.driver.switch_to.active_element.accessible_name == "Previous sample"
    page.press(Keys.ESCAPE)
    assert not page.part("dialog").is_displayed()
    where_one_was = WebDriverWait(page.driver, 10)
    where_one_was.until(lambda driver: driver.switch_to.active_element.text == order[2])
    page.press(Keys.END)
    assert page.driver.switch_to.active_element.text == order[-1]
    page.press(*[Keys.ARROW_UP] * 14)
    top = "document.activeElement.getBoundingClientRect().top"
    covered = "document.querySelector('.samples th').getBoundingClientRect().bottom"
    assert (
        page.run(f"{top} - {covered}") >= 0
    )  # the names of the columns, which stay in sight, hide no row
    webdriver.ActionChains(page.driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(
        Keys.SHIFT
    ).perform()
    assert page.driver.switch_to.active_element.text == "TU"
    page.press(Keys.ENTER)
    assert page.names == sorted(values, key=values.get)


def test_controls_have_accessible_names(page):
    def nameless(selector):
        controls = page.driver.find_elements(By.CSS_SELECTOR, selector)
        assert len(controls) > 5
        return [
            one.get_attribute("outerHTML")
            for one in controls
            if one.is_displayed() and not one.accessible_name
        ]

    assert nameless("select[name], th button, tr:first-child td button") == []
    page.show("row 1")
    assert nameless("dialog, dialog :is(button, select, input, svg)") == []
    assert page.part("dialog").aria_role == "dialog"


def assert_same_polygon(drawn, points):
    """Equal hulls: each has no vertex outside of the other, and their areas agree."""
    expected = ConvexHull(points[:, :2])
    outside = drawn[:, :2] @ expected.equations[:, :2].T + expected.equations[:, 2]
    assert outside.max() < 1e-4
    assert ConvexHull(drawn[:, :2]).volume == pytest.approx(expected.volume, abs=2e-4)


def test_triangle_coordinates(page):
    for number in (0, 6, 11):
        page.show(IMAGES.names[number])
        found = IMAGES.prediction[number]
        vertices, order = (
            found.vertices().numpy(),
            found.intersection.argsort(descending=True).tolist(),
        )
        said = page.corners("#", "#", "rest")  # two classes, and all others together
        two = vertices[:, order[:2]]
        assert_same_polygon(page.polygon(), np.column_stack([two, 1 - two.sum(1)]))
        assert "projection" in said
        for corners in (
            [0, 1, 2],
            [4, 2, 3],
        ):  # the probabilities are conditional on the selected classes
            said = page.corners(*corners)
            three, together = vertices[:, corners], vertices[:, corners].sum(1)
            likely = (
                together > 1e-12
            )  # the conditional distribution is not defined if all probabilities are 0
            assert_same_polygon(page.polygon(), three[likely] / together[likely, None])
            bounds = re.search(r"between (\S+) and (\d\.\d+)\.", said).groups()
            assert [float(bound) for bound in bounds] == pytest.approx(
                [together.min(), together.max()], abs=6e-4
            )
        page.part("close").click()


def test_corners_are_distinct(page):
    page.show("row 2")
    assert page.corners(1, 1, "#") == "Choose three different corners."
    assert page.texts("svg *") == []
    assert page.corners(1, "#", "#").startswith("The probabilities are conditional")


def test_extreme_sets_in_triangle(browser, tmp_path):
    corner = [1.0, 0.0, 0.0, 0.0]
    lower, upper = torch.tensor([[0.0] * 4, corner]), torch.tensor([[1.0] * 4, corner])
    found = Samples("x", CredalSet(lower, upper), ["all", "one"], 2)
    page = browser.open(
        write_page(tmp_path / "r.html", "Title", [Section("A", [explore([found], list("abcd"))])])
    )
    page.show("all")
    page.corners(0, 1, 3)
    assert_same_polygon(page.polygon(), np.eye(3))  # every distribution
    page.part("next").click()
    page.corners(0, 1, 2)
    np.testing.assert_allclose(page.polygon() - [1, 0, 0], 0, atol=1e-4)
    assert "0" in page.corners(3, 1, 2)
    assert page.errors() == []


def test_three_classes_and_two(browser, tmp_path):
    three = Samples("x", credal_sets(4, 0.5, 3, classes=3), list("1234"), 4)
    two = Samples("y", credal_sets(4, 0.5, 3, classes=2), list("5678"), 4)
    parts = [Section("A", [explore([three], list("abc"))])]
    page = browser.open(write_page(tmp_path / "r.html", "Title", parts))
    page.show("2")
    order = three.prediction[1].intersection.argsort(descending=True)
    assert_same_polygon(page.polygon(), three.prediction[1].vertices().numpy()[:, order])
    assert page.part("drawn").text.startswith("The shaded polygon is the credal set")
    parts = [Section("B", [explore([two], ["no", "yes"], "probability")])]
    page.open(write_page(tmp_path / "r.html", "Title", parts))
    page.show("6")
    assert len(page.texts("[data-part=intervals] tr")) == 2
    assert page.driver.find_elements(By.CSS_SELECTOR, "svg") == []
    assert page.errors() == []


def test_most_probable_classes_are_shown(browser, tmp_path):
    many = Samples("x", credal_sets(3, 0.05, 5, classes=40), list("123"), 3)
    parts = [Section("A", [explore([many], [f"c{k}" for k in range(40)])])]
    page = browser.open(write_page(tmp_path / "r.html", "T", parts))
    page.show("1")
    found = many.prediction[0]
    shown = max(12, int(found.classes("maximality").sum()))
    order = found.upper.argsort(descending=True).tolist()
    rows = page.texts("[data-part=intervals] tr")
    assert len(rows) == shown + 1
    assert page.texts("[data-part=intervals] th") == [f"c{k}" for k in order[:shown]]
    most = found.upper[order[shown]]
    assert rows[-1] == f"{40 - shown} others, each up to {most:.3f}, are ruled out"
    assert page.errors() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_window_does_not_scroll_horizontally(browser, path, scheme):
    page = browser.open(path, width=390, scheme=scheme)
    wider = (
        "[...document.querySelectorAll(arguments[0])].filter((e) => e.scrollWidth > e.clientWidth)"
    )
    assert page.run("innerWidth") == 390
    assert page.run(wider, "html, .samples") == []
    page.show("row 5")
    assert page.run("document.querySelector('dialog').offsetWidth") == 390
    assert page.run(wider, "html, dialog, dialog div") == []
    assert browser.errors() == []


def test_color_scheme(browser, path):
    def brightness(element, attribute):
        color = browser.run(f"getComputedStyle(document.querySelector('{element}')).{attribute}")
        return np.mean([int(part) for part in color[color.index("(") + 1 : -1].split(",")[:3]])

    for scheme, is_dark in (("light", False), ("dark", True)):
        browser.open(path, scheme=scheme).show("row 5")
        for element in ("body", ".samples th", "dialog", ".filters select"):
            assert (brightness(element, "backgroundColor") < 128) == is_dark
            assert (brightness(element, "color") > 128) == is_dark


def test_names_are_escaped(page):
    page.show("row 6")
    assert page.driver.find_elements(By.CSS_SELECTOR, ".explorer b") == []
    assert page.texts("[data-part=intervals] th") == CLASSES
    assert page.texts("[data-part=cells] td")[1] == "<i>red</i>"


def test_rows_are_rendered_lazily(browser, tmp_path):
    names = [f"row {i}" for i in range(250)]
    many = Samples("x", credal_sets(250, 0.3, 7, classes=3), names, 250)
    page = browser.open(
        write_page(tmp_path / "r.html", "Title", [Section("A", [explore([many], list("abc"))])])
    )
    page.sort("name")
    assert page.names == names[:100]
    page.run("document.querySelector('.samples').scrollTo(0, 1e6)")
    WebDriverWait(page.driver, 10).until(lambda _: len(page.names) == 200)
    page.run("document.querySelector('[data-part=rows] button').focus()")
    page.press(Keys.END)
    assert page.driver.switch_to.active_element.text == names[-1]
    assert page.names == names
    assert page.errors() == []
