"""The oracle's scripts for the site `shop`."""

from __future__ import annotations

from wevo_nb.schema import Action
from wevo_nb.tasks.sites.oracle import Lost, Page, Script, choose, click, exactly, fill, script, seek


def search(page: Page, text: str) -> Script:
    yield from fill(page, "textbox|searchbox", "Search", text)
    yield from click(page, "button", "Search")
    return ""


def open_book(page: Page, title: str) -> Script:
    """To the page of a book."""
    yield from search(page, title)
    yield from click(page, "link", exactly(title))
    return ""


def property_of(page: Page, name: str) -> Script:
    """A value of the table of the book's properties."""
    row = yield from seek(page, "row", rf"{name} ?\| ?.+")
    return row.name.split("|")[1].strip()


def found(page: Page, pattern: str) -> str:
    """What the pattern's group takes in the last text that fits (the first price is the basket's)."""
    texts = page.texts(pattern)
    if not texts:
        raise Lost(f"nothing like {pattern!r} on {page.seen.title!r}")
    return texts[-1][1]


def first_book(page: Page) -> Script:
    """The title of the first book in a list."""
    heading = yield from seek(page, "heading", "The .*")
    return heading.name


@script("shop-price")
def price(page: Page, book: str) -> Script:
    yield from open_book(page, book)
    return found(page, r"(£[\d,.]+)")


@script("shop-category")
def category(page: Page, category: str) -> Script:
    yield from click(page, "link", exactly(category))
    return "done"


@script("shop-add")
def add(page: Page, book: str) -> Script:
    yield from click(page, "button", "Add to basket")
    yield from click(page, "link|button", "View basket")
    return "done"


@script("shop-attribute")
def attribute(page: Page, book: str, attribute: str) -> Script:
    yield from open_book(page, book)
    return (yield from property_of(page, attribute.capitalize()))


@script("shop-count")
def count(page: Page, word: str) -> Script:
    yield from search(page, word)
    return results(page)


def results(page: Page) -> str:
    """The number between `Found` and `results.`"""
    for before, number in zip(page.elements, page.elements[1:], strict=False):
        if before.name == "Found" and number.name.isdigit():
            return number.name
    return found(page, r".*Found (\d+) results?.*")


@script("shop-cheapest")
def cheapest(page: Page, word: str) -> Script:
    yield from search(page, word)
    yield from choose(page, "Sort by", "Price low to high")
    return (yield from first_book(page))


@script("shop-compare")
def compare(page: Page, one: str, two: str) -> Script:
    pages = {}
    for title in (one, two):
        if pages:
            yield Action(verb="scroll", text="up")
        yield from open_book(page, title)
        pages[title] = int((yield from property_of(page, "Pages")))
    return max(pages, key=pages.get)


@script("shop-basket")
def basket(page: Page, book: str) -> Script:
    yield from open_book(page, book)
    yield from click(page, "button", "Add to basket")
    return "done"


@script("shop-basket-copies")
def basket_copies(page: Page, book: str, copies: str) -> Script:
    yield from open_book(page, book)
    for _ in range(int(copies)):
        yield from click(page, "button", "Add to basket")
    return "done"


@script("shop-extreme")
def extreme(page: Page, extreme: str, category: str) -> Script:
    yield from click(page, "link", exactly(category))
    yield from choose(page, "Sort by", "Price low to high" if extreme == "cheapest" else "Price high to low")
    return (yield from first_book(page))


@script("shop-stock")
def stock(page: Page, book: str) -> Script:
    yield from open_book(page, book)
    return found(page, r"In stock \((\d+) available\)")


@script("shop-basket-two")
def basket_two(page: Page, one: str, two: str) -> Script:
    for title in (one, two):
        yield from open_book(page, title)
        yield from click(page, "button", "Add to basket")
    return "done"


@script("shop-review")
def review(page: Page, book: str, title: str, score: str, text: str) -> Script:
    yield from open_book(page, book)
    yield from click(page, "link", "Write a review")
    yield from fill(page, "textbox", "Title.*", title)
    star = yield from seek(page, "clickable", ".*star.*", int(score) - 1)
    yield Action(verb="click", id=star.id)
    yield from fill(page, "textbox", "Body.*", text)
    yield from fill(page, "textbox", "Name.*", "Kim")
    yield from fill(page, "textbox", "Email.*", "kim@example.org")
    yield from click(page, "button", "Save review")
    return "done"
