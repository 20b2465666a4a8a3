"""Which hosts an episode may reach, how its URLs are shown, and which sites do not let a program in.

`hosts` maps "address:port", "*.example.org" or "*" (any public host) to the name that is shown.
Human-verification pages are told, never answered. Used by browser.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

PRIVATE = (
    r"[^/.:@]+|[^/]*\.(?:localhost|local|internal)|127\.[0-9.]+|10\.[0-9.]+|192\.168\.[0-9.]+|169\.254\.[0-9.]+|"
    r"172\.(?:1[6-9]|2[0-9]|3[01])\.[0-9.]+|100\.(?:6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.[0-9.]+|0\.0\.0\.0|\[[^\]]*\]"
)
CHALLENGE_HOSTS = ("challenges.cloudflare.com", "hcaptcha.com", "geo.captcha-delivery.com", "arkoselabs.com")
CHALLENGE_WORDS = re.compile(
    r"verify(?:ing)? (?:that )?you(?:'re| are) (?:a )?human|are you a robot|i'm not a robot|unusual traffic|"
    r"checking your browser|press (?:and|&) hold|complete the captcha",
    re.I,
)
CHALLENGE_TITLE = re.compile(r"\s*(just a moment\.\.\.|attention required!|access denied)\s*(?:$|\|)", re.I)
SHORT_PAGE = 2500  # characters: a challenge page has little else


def allowed_pattern(hosts: Mapping[str, str]) -> str:
    """A regular expression for host[:port] of what may be reached."""
    parts = []
    for address in hosts:
        if address == "*":
            parts.append(rf"(?!(?:{PRIVATE})\.?(?::\d+)?(?:[/?#]|$))[^/?#@]+")
        elif address.startswith("*."):
            parts.append(rf"(?:[^/]*\.)?{re.escape(address[2:])}(?::\d+)?")
        else:
            parts.append(re.escape(address))
    return f"(?:{'|'.join(parts)})" if parts else r"(?!)"


def block_pattern(hosts: Mapping[str, str]) -> re.Pattern:
    """Of the URLs that are refused: http and web sockets of every other host."""
    return re.compile(rf"^(?:https?|wss?)://(?!{allowed_pattern(hosts)}(?:[/?#]|$))", re.I)


def is_allowed(url: str, hosts: Mapping[str, str]) -> bool:
    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # no address at all, e.g. http://[x
        return False
    return scheme in ("http", "https") and not block_pattern(hosts).match(url)


def shown_url(url: str, hosts: Mapping[str, str]) -> str:
    """The URL with the host's name in place of an address of this machine, whose port is another every time."""
    parts = urlsplit(url)
    return parts._replace(netloc=hosts[parts.netloc]).geturl() if parts.netloc in hosts else url


def challenge(status: int | None, title: str, text: str, frame_urls: Sequence[str]) -> str:
    """Why this page is a human-verification or blocking page; empty where it is none."""
    frame = next(
        (h for url in frame_urls[1:] for h in CHALLENGE_HOSTS if (urlsplit(url).hostname or "").endswith(h)), ""
    )
    words = CHALLENGE_TITLE.match(title) or CHALLENGE_WORDS.search(f"{title}\n{text}")
    refused = (status or 200) in (401, 403, 429, 503)
    if words and len(text) < SHORT_PAGE and (frame or refused or words.re is CHALLENGE_TITLE):
        return f"the site asks for a human: {words[0].strip(' |')!r}" + (
            f" (HTTP {status})" if (status or 200) >= 400 else ""
        )
    return ""
