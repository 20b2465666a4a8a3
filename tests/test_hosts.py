"""Which hosts an episode may reach, how its URLs are shown, and what is a human-verification page."""

from __future__ import annotations

import pytest

from wevo_nb.hosts import block_pattern, challenge, is_allowed, shown_url

HOSTS = {"127.0.0.1:80": "shop", "*.example.org": "example"}


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.0.0.1:80/x", True),
        ("http://127.0.0.1:8080/", False),
        ("http://127.0.0.1/", False),
        ("https://example.org/a?b#c", True),
        ("https://www.example.org", True),
        ("https://example.org.evil.net/", False),
        ("https://evil.net/example.org", False),
        ("https://user@evil.net:80/", False),
        ("https://badexample.org/", False),
        ("file:///etc/passwd", False),
    ],
)
def test_which_urls_are_allowed(url, allowed):
    assert is_allowed(url, HOSTS) is allowed


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1:99",
        "10.1.2.3",
        "192.168.0.1",
        "172.20.0.1:8",
        "169.254.169.254",
        "[::1]",
        "2130706433",
        "localhost.",
        "u:p@127.0.0.1",
        "router",
        "metadata.google.internal",
        "100.64.0.1",
    ],
)
def test_a_private_address_is_no_public_host(host):
    assert block_pattern({"*": "any"}).match(f"http://{host}/x") and not is_allowed(f"http://{host}", {"*": "any"})


def test_any_public_host_and_how_urls_are_shown():
    assert is_allowed("https://anything.net/x", {"*": "any"}) and is_allowed(
        "wss://a.b/".replace("wss", "https"), {"*": "any"}
    )
    assert shown_url("http://127.0.0.1:80/a?b=1#c", HOSTS) == "http://shop/a?b=1#c"
    assert shown_url("https://example.org/", HOSTS) == "https://example.org/"


def test_what_is_a_challenge_and_what_only_speaks_of_one():
    frames = ["http://a.org/", "https://challenges.cloudflare.com/x"]
    assert challenge(403, "Attention Required! | Cloudflare", "", [])
    assert challenge(200, "Shop", "[1] StaticText 'Verify you are human'", frames) == (
        "the site asks for a human: 'Verify you are human'"
    )
    assert challenge(429, "x", "Our systems have detected unusual traffic", []).endswith("(HTTP 429)")
    assert challenge(200, "Contact", "[1] button 'Send'", ["http://a.org/", "https://hcaptcha.com/badge"]) == ""
    assert challenge(200, "Journal", "we verify you are human readers", ["http://a.org/"]) == ""
    assert challenge(200, "Just a moment...", "word " * 1000, []) == ""
    assert challenge(200, "#12 (Access denied when saving a file) - issues", "", []) == ""
    assert challenge(200, "Just a moment in time: a poem", "", []) == ""
    assert challenge(403, "Forbidden", "[1] StaticText 'Access denied'", []) == ""
