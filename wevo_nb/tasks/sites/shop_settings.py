"""Django settings of the site `shop`: oscar as its documentation sets it up, on sqlite and whoosh.

Reads the folder from the environment variable WEVO_SHOP, which shop.py sets.
"""

import os
from pathlib import Path

from oscar.defaults import *  # noqa: F403

FOLDER = Path(os.environ["WEVO_SHOP"])
SECRET_KEY = "a shop on localhost that sells nothing"
DEBUG = False
ALLOWED_HOSTS = ["*"]
SITE_ID = 1
TIME_ZONE, USE_TZ, USE_I18N = "UTC", True, False
LANGUAGE_CODE, LANGUAGES = "en-gb", [("en-gb", "English")]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "shop.sqlite3",
        "ATOMIC_REQUESTS": True,
        "OPTIONS": {"timeout": 30},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # nothing here is worth a slow one
_DJANGO = "auth contenttypes sessions messages staticfiles sites flatpages admin"
_OSCAR = (
    "analytics.apps.AnalyticsConfig checkout.apps.CheckoutConfig address.apps.AddressConfig "
    "shipping.apps.ShippingConfig catalogue.apps.CatalogueConfig catalogue.reviews.apps.CatalogueReviewsConfig "
    "communication.apps.CommunicationConfig partner.apps.PartnerConfig basket.apps.BasketConfig "
    "payment.apps.PaymentConfig offer.apps.OfferConfig order.apps.OrderConfig customer.apps.CustomerConfig "
    "search.apps.SearchConfig voucher.apps.VoucherConfig wishlists.apps.WishlistsConfig "
    "dashboard.apps.DashboardConfig dashboard.reports.apps.ReportsDashboardConfig "
    "dashboard.users.apps.UsersDashboardConfig dashboard.orders.apps.OrdersDashboardConfig "
    "dashboard.catalogue.apps.CatalogueDashboardConfig dashboard.offers.apps.OffersDashboardConfig "
    "dashboard.partners.apps.PartnersDashboardConfig dashboard.pages.apps.PagesDashboardConfig "
    "dashboard.ranges.apps.RangesDashboardConfig dashboard.reviews.apps.ReviewsDashboardConfig "
    "dashboard.vouchers.apps.VouchersDashboardConfig dashboard.communications.apps.CommunicationsDashboardConfig "
    "dashboard.shipping.apps.ShippingDashboardConfig"
)
INSTALLED_APPS = [
    *(f"django.contrib.{name}" for name in _DJANGO.split()),
    "oscar.config.Shop",
    *(f"oscar.apps.{name}" for name in _OSCAR.split()),
    "widget_tweaks",
    "haystack",
    "treebeard",
    "django_tables2",
    "sorl.thumbnail",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.contrib.flatpages.middleware.FlatpageFallbackMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
]
AUTHENTICATION_BACKENDS = (
    "oscar.apps.customer.auth_backends.EmailBackend",
    "django.contrib.auth.backends.ModelBackend",
)
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [Path(__file__).with_name("shop_templates")],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "oscar.apps.search.context_processors.search_form",
                "oscar.apps.checkout.context_processors.checkout",
                "oscar.apps.communication.notifications.context_processors.notifications",
                "oscar.core.context_processors.metadata",
            ]
        },
    }
]
HAYSTACK_CONNECTIONS = {
    "default": {"ENGINE": "haystack.backends.whoosh_backend.WhooshEngine", "PATH": str(FOLDER / "whoosh")}
}
ROOT_URLCONF = "wevo_nb.tasks.sites.shop_urls"
STATIC_URL, MEDIA_URL = "/static/", "/media/"
MEDIA_ROOT = str(FOLDER / "media")
OSCAR_SHOP_NAME, OSCAR_SHOP_TAGLINE = "Book Shop", ""
OSCAR_DEFAULT_CURRENCY = "GBP"
OSCAR_ALLOW_ANON_CHECKOUT = True
OSCAR_INITIAL_ORDER_STATUS = OSCAR_INITIAL_LINE_STATUS = "Pending"
OSCAR_MISSING_IMAGE_URL = "image_not_found.jpg"
