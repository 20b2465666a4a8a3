"""Templates over the site `shop`; answers and states come from its database by SQL."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from wevo_nb.tasks.sites.shop import DATABASE
from wevo_nb.tasks.sites.templates import DONE, Opened, Reached, World, query, template

BOOKS = """select p.title, r.price, r.num_in_stock, c.name
from catalogue_product p join partner_stockrecord r on r.product_id = p.id
join catalogue_productcategory pc on pc.product_id = p.id join catalogue_category c on c.id = pc.category_id
order by p.id"""
ATTRIBUTES = """select p.title, a.code, coalesce(v.value_text, v.value_integer)
from catalogue_productattributevalue v join catalogue_productattribute a on a.id = v.attribute_id
join catalogue_product p on p.id = v.product_id order by p.id, a.code"""
BASKETS = """select p.title, sum(l.quantity) from basket_line l join catalogue_product p on p.id = l.product_id
group by p.title"""
REVIEWS = """select p.title, r.title, r.score from reviews_productreview r
join catalogue_product p on p.id = r.product_id"""


@template("shop-price", 'What is the price of the book "{book}"?', "shop", kind="lookup")
def price(world: World):
    for title, amount, _, _ in _books(world):
        yield {"book": title}, float(amount)


@template("shop-category", 'Open the category "{category}".', "shop", start="/catalogue/", kind="navigation")
def category(world: World):
    sql = "select id, name, slug, substr(path, 1, length(path) - 4), path from catalogue_category order by path"
    slugs = {"": ""}
    for number, name, slug, above, path in world.query(f"shop/{DATABASE}", sql):
        slugs[path] = f"{slugs[above]}/{slug}"
        yield {"category": name}, Opened(f"/catalogue/category{slugs[path]}_{number}/")


@template(
    "shop-add",
    'Add the book "{book}" to the basket and open the basket.',
    "shop",
    start="/catalogue/{page}/",
    kind="state",
)
def add(world: World):
    rows = world.query(f"shop/{DATABASE}", "select title, slug || '_' || id from catalogue_product")
    pages = dict(rows)
    for title, _, stock, _ in _books(world):
        if stock:
            yield {"book": title, "page": pages[title]}, Opened("/basket/", in_basket({title: 1}))


@template("shop-attribute", 'What is the {attribute} of the book "{book}"?', "shop", kind="lookup")
def attribute(world: World):
    for title, code, value in world.query(f"shop/{DATABASE}", ATTRIBUTES):
        if code in ("author", "publisher", "year"):
            yield {"book": title, "attribute": code}, value


@template("shop-count", 'How many books does a search for "{word}" find?', "shop", kind="count")
def count(world: World):
    for word, found in _by_word(world).items():
        yield {"word": word}, len(found)


@template("shop-cheapest", 'Which is the cheapest book with the word "{word}" in its title?', "shop", kind="extreme")
def cheapest(world: World):
    for word, found in _by_word(world).items():
        (least, title), (next_one, _) = sorted(found)[:2]
        if least < next_one:
            yield {"word": word}, title


@template("shop-compare", 'Which book has more pages, "{one}" or "{two}"?', "shop", kind="compare")
def compare(world: World):
    rows = world.query(f"shop/{DATABASE}", ATTRIBUTES)
    pages = [(title, int(value)) for title, code, value in rows if code == "pages"]
    for (one, many), (two, more) in pairwise(pages):
        if many != more:
            yield {"one": one, "two": two}, [one, two] if many > more else [two, one]


@template(
    "shop-basket", f'Put the book "{{book}}" into the basket, one copy and nothing else. {DONE}', "shop", kind="state"
)
def basket(world: World):
    for title, _, stock, _ in _books(world):
        if stock:
            yield {"book": title}, in_basket({title: 1})


@template(
    "shop-basket-copies",
    f'Put {{copies}} copies of the book "{{book}}" into the basket and nothing else. {DONE}',
    "shop",
    kind="state",
)
def basket_copies(world: World):
    for number, (title, _, stock, _) in enumerate(_books(world)):
        if stock > 4:
            copies = 2 + number % 3
            yield {"book": title, "copies": copies}, in_basket({title: copies})


@template(
    "shop-extreme", 'Which is the {extreme} book of the category "{category}"?', "shop", held_out=True, kind="extreme"
)
def extreme(world: World):
    shelves: dict[str, list] = {}
    for title, amount, _, category in _books(world):
        shelves.setdefault(category, []).append((amount, title))
    for category, found in shelves.items():
        for word, ranked in (("cheapest", sorted(found)), ("most expensive", sorted(found, reverse=True))):
            if ranked[0][0] != ranked[1][0]:
                yield {"category": category, "extreme": word}, ranked[0][1]


@template("shop-stock", 'How many copies of the book "{book}" are available?', "shop", held_out=True, kind="lookup")
def stock(world: World):
    for title, _, available, _ in _books(world):
        if available:
            yield {"book": title}, available


@template(
    "shop-basket-two",
    f'Put the books "{{one}}" and "{{two}}" into the basket, one copy each. {DONE}',
    "shop",
    held_out=True,
    kind="state",
)
def basket_two(world: World):
    for one, two in pairwise(title for title, _, available, _ in _books(world) if available):
        yield {"one": one, "two": two}, in_basket({one: 1, two: 1})


@template(
    "shop-review",
    'Write a review of the book "{book}" with the title "{title}", {score} stars, the text '
    f'"{{text}}", the name "Kim" and the email "kim@example.org". {DONE}',
    "shop",
    held_out=True,
    kind="state",
)
def review(world: World):
    texts = ("Well made", "Too short", "A fine gift", "Not for me", "Read it twice")
    for number, (book, _, _, _) in enumerate(_books(world)):
        title, score = texts[number % 5], 1 + number % 4
        yield {"book": book, "title": title, "score": score, "text": "I read it in June."}, reviewed(book, title, score)


def in_basket(wanted: dict[str, int]) -> Reached:
    """These books in that many copies are all that any basket holds."""

    def holds(folder: Path) -> bool:
        return dict(query(folder / DATABASE, BASKETS)) == wanted

    return Reached(holds)


def reviewed(book: str, title: str, score: int) -> Reached:
    """There is that one new review."""

    def holds(folder: Path) -> bool:
        before, after = query(folder / "pristine.sqlite3", REVIEWS), query(folder / DATABASE, REVIEWS)
        return len(after) == len(before) + 1 and (book, title, score) in after

    return Reached(holds)


def _books(world: World) -> list[tuple]:
    """(title, price, stock, category) of each book."""
    return world.query(f"shop/{DATABASE}", BOOKS)


def _by_word(world: World) -> dict[str, list[tuple[float, str]]]:
    """Word of a title -> (price, title) of the books that have it."""
    out: dict[str, list] = {}
    for title, amount, _, _ in _books(world):
        for word in title.split()[1:]:
            out.setdefault(word, []).append((amount, title))
    return {word: found for word, found in out.items() if len(found) > 2}
