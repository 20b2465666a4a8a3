"""The site `shop`: django-oscar with a small catalogue, search, sorting, reviews and a basket.

What it sells is synthetic: titles, authors, prices and stock come from a fixed seed.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from decimal import Decimal
from pathlib import Path

from wevo_nb.tasks.sites.files import FOR_EVER

DATABASE = "shop.sqlite3"
PRISTINE = "pristine.sqlite3"
BOOKS = 180
CATEGORIES = (
    "Fiction > Mystery",
    "Fiction > Science Fiction",
    "Fiction > Romance",
    "Fiction > Poetry",
    "Non-Fiction > Cooking",
    "Non-Fiction > History",
    "Non-Fiction > Gardening",
    "Non-Fiction > Travel",
)
FIRST = "Silent Golden Hidden Broken Distant Crimson Last Wild Paper Glass Winter Iron Gentle Electric Lost".split()
SECOND = (
    "River Garden Compass Mountain Letter Island Harbour Library Forest Machine Orchard Lantern Voyage Museum Shadow"
).split()
GIVEN = "Ana Ben Chloe Dmitri Elif Farah Goran Hana Ivo Jun".split()
FAMILY = "Okafor Silva Novak Haddad Larsen Mori Patel Quinn Rossi Weber".split()
PUBLISHERS = ("Northgate Press", "Bluefin Books", "Quarry House", "Meridian Editions", "Saltmarsh", "Pale Fox")


def books() -> list[dict]:
    """Everything that is for sale."""
    rng = random.Random("shop")
    titles = [f"The {first} {second}" for first in FIRST for second in SECOND]
    rng.shuffle(titles)
    return [
        {
            "title": title,
            "upc": f"BK{1000 + i}",
            "category": CATEGORIES[i % len(CATEGORIES)],
            "author": f"{rng.choice(GIVEN)} {rng.choice(FAMILY)}",
            "pages": rng.randint(80, 900),
            "publisher": rng.choice(PUBLISHERS),
            "year": rng.randint(1970, 2024),
            "price": Decimal(rng.randint(1000, 9999)) / 100,  # two digits: the search sorts prices as texts
            "stock": rng.choice([0, 3, 20, 50]),
            "reviews": [(rng.randint(1, 5), rng.choice(GIVEN)) for _ in range(rng.choice([0, 0, 1, 2, 3]))],
        }
        for i, title in enumerate(titles[:BOOKS])
    ]


def build(folder: Path):
    """Writes the database, the search index and a pristine copy of the database."""
    configure(folder)
    from django.apps import apps
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connections, transaction

    settings.MIGRATION_MODULES = {app.label: None for app in apps.get_app_configs()}  # tables at once: 4 s for 27
    call_command("migrate", run_syncdb=True, verbosity=0)
    with transaction.atomic():
        _fill()
    call_command("rebuild_index", interactive=False, verbosity=0)
    connections.close_all()
    shutil.copyfile(folder / DATABASE, folder / PRISTINE)


def application(folder: Path):
    """The WSGI application."""
    configure(folder)
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.wsgi import get_wsgi_application

    class Dress(StaticFilesHandler):
        def serve(self, request):
            response = super().serve(request)
            response["Cache-Control"] = f"max-age={FOR_EVER}"
            return response

    return Dress(get_wsgi_application())


def reset(folder: Path):
    """The database as it was when built; sessions and baskets are in it too."""
    from django.core.cache import cache

    restore(folder / PRISTINE, folder / DATABASE)
    cache.clear()


def restore(pristine: Path, live: Path):
    """Copies a database over one that is open."""
    source, target = sqlite3.connect(pristine), sqlite3.connect(live, timeout=30)
    with source, target:
        source.backup(target)
    source.close()
    target.close()


def configure(folder: Path):
    """Sets Django up for this folder."""
    os.environ["WEVO_SHOP"] = str(folder)
    os.environ["DJANGO_SETTINGS_MODULE"] = "wevo_nb.tasks.sites.shop_settings"
    import django

    django.setup()


def _fill():
    from django.contrib.sites.models import Site
    from oscar.apps.catalogue.categories import create_from_breadcrumbs
    from oscar.core.loading import get_model

    Site.objects.update_or_create(id=1, defaults={"domain": "shop", "name": "Book Shop"})
    get_model("address", "Country").objects.create(
        iso_3166_1_a2="GB", iso_3166_1_a3="GBR", iso_3166_1_numeric="826", printable_name="United Kingdom",
        name="United Kingdom", is_shipping_country=True,
    )  # fmt: skip
    kind = get_model("catalogue", "ProductClass").objects.create(name="Book", track_stock=True)
    for name, of in (("Author", "text"), ("Pages", "integer"), ("Publisher", "text"), ("Year", "integer")):
        kind.attributes.create(name=name, code=name.lower(), type=of)
    partner = get_model("partner", "Partner").objects.create(name="Warehouse")
    categories = {name: create_from_breadcrumbs(name) for name in CATEGORIES}
    for book in books():
        _add(book, kind, partner, categories[book["category"]])


def _add(book: dict, kind, partner, category):
    from oscar.core.loading import get_model

    product = get_model("catalogue", "Product")(title=book["title"], upc=book["upc"], product_class=kind)
    product.description = "A book."  # no word that a search for a title would find
    for name in ("author", "pages", "publisher", "year"):
        setattr(product.attr, name, book[name])
    product.save()
    get_model("catalogue", "ProductCategory").objects.create(product=product, category=category)
    product.stockrecords.create(
        partner=partner, partner_sku=book["upc"], price=book["price"], num_in_stock=book["stock"]
    )
    for score, name in book["reviews"]:
        product.reviews.create(score=score, title=f"{score} of 5", body=f"I give it {score}.", name=name, status=1)
