"""The page of the matrix in headless Chromium: pointer, keys, sizes and colours."""

import html

import pytest

from arrowdev._cli import matrix_page, pairs
from arrowdev._cli.libraries import Bytes, Ctypes, Memoryview, Payload

CLOSED = ""
BOX = 'document.querySelector("output")'


class NarrowAndLong(Memoryview):
    name = "narrow_and_long"


@pytest.fixture(scope="module")
def matrix():
    peers = Memoryview(), Bytes(), Ctypes(), NarrowAndLong()
    return pairs.run_matrix(peers, Payload("int64", 20))


@pytest.fixture
def opened(browser, matrix, tmp_path):
    """Open the page of the matrix."""

    def opens(width=1200, height=900, scheme="light"):
        file = tmp_path / "matrix.html"
        file.write_text(matrix_page.page(matrix, {}), encoding="utf-8")
        browser.errors.clear()
        browser.size(width, height, scheme)
        browser.open(file)
        return browser

    yield opens
    assert browser.errors == []


def shown(tab):
    """The text of the box, or CLOSED."""
    return tab.run(f"{BOX}.hidden ? {CLOSED!r} : {BOX}.textContent")


def rectangle(tab, node):
    """Left, top, right and bottom in the window."""
    return tab.run(f"(({{left, top, right, bottom}}) => [left, top, right, bottom])"
                   f"({node}.getBoundingClientRect())")  # fmt: skip


def square(producer, consumer, way="through arrowdev"):
    label = f"{producer} to {consumer}, {way}"
    return f"document.querySelector(\"svg.matrix g[aria-label^='{label}']\")"


def middle(tab, node):
    left, top, right, bottom = rectangle(tab, node)
    return (left + right) / 2, (top + bottom) / 2


def focused(tab):
    label = tab.run("document.activeElement.getAttribute('aria-label') ?? ''")
    return html.unescape(label).partition("\n")[0]


@pytest.mark.parametrize("size", [(1200, 900), (400, 300)], ids=str)
def test_box_is_beside_the_square_and_within_the_window(opened, size):
    tab = opened(*size)
    for way in ("through arrowdev", "directly"):
        for consumer in ("memoryview", "ctypes", "narrow_and_long"):
            node = square("bytes", consumer, way)
            tab.run(f"{node}.scrollIntoView({{block: 'center', inline: 'center'}})")
            tab.drawn()
            tab.mouse("mouseMoved", *middle(tab, node))
            tab.drawn()
            assert shown(tab).startswith(f"bytes to {consumer}, {way}\n")
            left, top, right, bottom = rectangle(tab, BOX)
            assert left >= 0 and top >= 0 and right <= size[0] and bottom <= size[1]
            square_left, square_top, square_right, square_bottom = rectangle(tab, node)
            assert top >= square_bottom or bottom <= square_top  # which it does not cover
            assert min(abs(top - square_bottom), abs(bottom - square_top)) < 10
            assert left <= square_right and right >= square_left
    tab.mouse("mouseMoved", 1, 1)
    tab.drawn()
    assert shown(tab) == CLOSED


def test_keys_lead_from_square_to_square(opened):
    tab = opened()
    tab.press("Tab")
    assert focused(tab) == "memoryview to memoryview, through arrowdev"
    assert shown(tab) == CLOSED
    tab.press("ArrowUp", "ArrowLeft")  # there is none
    assert focused(tab) == "memoryview to memoryview, through arrowdev"
    tab.press("ArrowRight", "ArrowDown")
    assert focused(tab) == "bytes to ctypes, through arrowdev"
    tab.press("Enter")
    assert shown(tab).startswith("bytes to ctypes, through arrowdev\n")
    assert "refused: TypeError: underlying buffer is not writable" in shown(tab)
    tab.press("ArrowUp")  # an open box goes along
    assert shown(tab).startswith("memoryview to ctypes, through arrowdev\n")
    tab.press("Escape")
    assert shown(tab) == CLOSED
    assert focused(tab) == "memoryview to ctypes, through arrowdev"
    tab.press("End", " ")
    assert shown(tab).startswith("memoryview to narrow_and_long, directly\n")
    tab.press("Home")
    assert shown(tab).startswith("memoryview to memoryview, through arrowdev\n")
    tab.press("Tab")  # the squares are one stop
    assert focused(tab) == ""


def test_click_keeps_the_box_until_another_click(opened):
    tab = opened()
    tab.click(*middle(tab, square("ctypes", "memoryview")))
    tab.mouse("mouseMoved", *middle(tab, square("bytes", "memoryview")))
    tab.drawn()
    assert shown(tab).startswith("ctypes to memoryview, through arrowdev\n")
    tab.run("scrollTo(0, 40)")
    tab.drawn()
    below = rectangle(tab, square("ctypes", "memoryview"))[3]
    assert 5 < rectangle(tab, BOX)[1] - below < 7
    tab.click(3, 3)
    assert shown(tab) == CLOSED


def test_headings_of_the_times_are_whole_names_upright(opened, matrix):
    tab = opened()
    texts = tab.run("[...document.querySelectorAll('.turned')].map(one => one.textContent)")
    assert texts == ["memoryview", "ctypes", "narrow_and_long"]
    for i in range(len(texts)):
        left, top, right, bottom = rectangle(tab, f"document.querySelectorAll('.turned')[{i}]")
        assert bottom - top > 2 * (right - left)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme(opened, scheme):
    tab = opened(scheme=scheme)
    tab.press("Tab", "Enter")

    def lightness(node, of):
        colour = tab.run(f"getComputedStyle({node}).{of}")
        return sum(map(int, colour.strip("rgb()").split(", "))) / 3

    names = 'document.querySelector("svg.matrix .name")'
    for back, text in (
        (lightness("document.body", "backgroundColor"), lightness(names, "fill")),
        (lightness(BOX, "backgroundColor"), lightness(BOX, "color")),
    ):
        assert back - text > 150 if scheme == "light" else text - back > 150
