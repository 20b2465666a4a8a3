"""The live suites: what they list, how files come from their owners, and what an answer is worth.

The owners' hosts are stood in for by a server on localhost, their files by a few lines of our own in
their formats. Counts of the real files are checked where copies of them lie beside the project.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import threading
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from stand_ins import SMOKE, did

from wevo_nb import tasks
from wevo_nb.browser import BrowserEnv
from wevo_nb.chromium import Chromium
from wevo_nb.har import har_file
from wevo_nb.judge import RewardJudge
from wevo_nb.params import ParamsError, load_params
from wevo_nb.rollout import rollout
from wevo_nb.schema import Task
from wevo_nb.tasks import download, live, suite_named
from wevo_nb.tasks.download import Download, DownloadError, fetch, verified

COPIES = Path(__file__).parent.parent.parent / "shared" / "data" / "openwebvoyager"
have_copies = pytest.mark.skipif(not COPIES.is_dir(), reason=f"no copies of the owners' files in {COPIES}")
PAPER_SITES = {
    "Allrecipes": 45, "Apple": 43, "ArXiv": 43, "BBC News": 42, "Cambridge Dictionary": 43, "Coursera": 42,
    "ESPN": 44, "GitHub": 41, "Google Map": 41, "Huggingface": 43, "Wolfram Alpha": 46,
}  # fmt: skip
LINES = [
    {"web_name": "Amazon", "id": "a", "ques": "Buy a lamp.", "web": "https://www.amazon.com/"},
    {"web_name": "ArXiv", "id": "b", "ques": "Find a paper on lamps", "web": "https://arxiv.org/"},
    {"website": "yelp", "id": "c", "ques": "Which lamp shop is open?", "web": "https://www.yelp.com"},
    {"id": "d", "ques": "Search for lamps.", "web": "https://www.google.com/"},
]
TEXT = "".join(json.dumps(line) + "\n" for line in LINES)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty folder for downloads."""
    monkeypatch.setenv("WEVO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "live"


class Owner:
    """Stands in for an owner's host: answers `/name` with what `files` holds, a status or bytes."""

    def __init__(self):
        self.files: dict[str, bytes | int] = {}
        self.asked: list[str] = []
        self.short = 0  # so many bytes of an answer are held back

    def __enter__(self) -> Owner:
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                owner.asked.append(self.path)
                found = owner.files.get(self.path, 404)
                if isinstance(found, int):
                    return self.send_error(found)
                self.send_response(200)
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                self.wfile.write(found[: len(found) - owner.short])

            def log_message(self, *_):
                """Says nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def offers(self, content: bytes, *, known: bool = True, name: str = "queries.jsonl") -> Download:
        self.files[f"/{name}"] = content
        address = f"http://127.0.0.1:{self.server.server_address[1]}/{name}"
        return Download(name, address, hashlib.sha256(content).hexdigest() if known else None)


@pytest.fixture
def owner():
    with Owner() as one:
        yield one


def suite_of(text: str, read, split="test_tasks", rule="match") -> live.Live:
    """A suite whose one file is here already."""
    one = Download("mine.txt", "http://127.0.0.1:1/mine.txt", hashlib.sha256(text.encode()).hexdigest())
    download.live_folder().mkdir(parents=True, exist_ok=True)
    (download.live_folder() / one.file).write_text(text, encoding="utf-8")
    return live.Live("mine", "our own", "", (live.Part(one, "mine", split, read),), rule)


# -- downloads


def test_a_file_is_fetched_once_checked_and_kept_whole(owner, cache):
    one = owner.offers(TEXT.encode())
    assert fetch(one, "mine") == cache / "queries.jsonl"
    assert (cache / "queries.jsonl").read_text() == TEXT
    assert fetch(one, "mine") == verified(one, "mine") and owner.asked == ["/queries.jsonl"]
    assert [path.name for path in cache.iterdir()] == ["queries.jsonl"]  # nothing half, nothing pinned


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda owner: owner.files.update({"/queries.jsonl": 404}), "HTTP Error 404: Not Found"),
        (lambda owner: owner.files.update({"/queries.jsonl": 401}), "HTTP Error 401"),
        (lambda owner: setattr(owner, "short", 5), "IncompleteRead"),
        (lambda owner: owner.files.update({"/queries.jsonl": b"other"}), r"\(5 bytes\) has SHA-256 [0-9a-f]{64}, and"),
        (lambda owner: owner.__exit__(), "Connection refused"),
    ],
    ids=["not there", "gated", "cut off", "another file", "no network"],
)
def test_a_download_that_fails_leaves_nothing_and_names_address_folder_and_cure(cache, change, said):
    with Owner() as owner:
        one = owner.offers(TEXT.encode())
        change(owner)
        with pytest.raises(DownloadError, match=said) as problem:
            fetch(one, "webvoyager")
    assert one.url in str(problem.value) and str(cache) in str(problem.value)
    assert "wevo tasks webvoyager --download" in str(problem.value)
    assert not cache.exists() or list(cache.iterdir()) == []


def test_an_unknown_checksum_is_pinned_at_the_first_download(owner, cache):
    one = owner.offers(b"first", known=False)
    assert one.checksum == "checksum unknown: recorded at first download"
    fetch(one, "mine")
    pinned = hashlib.sha256(b"first").hexdigest()
    assert json.loads((cache / "checksums.json").read_text()) == {"queries.jsonl": pinned}
    (cache / "queries.jsonl").unlink()
    owner.offers(b"second", known=False)
    with pytest.raises(DownloadError, match=f"and what was first downloaded .*checksums.json.* has {pinned}"):
        fetch(one, "mine")
    assert not (cache / "queries.jsonl").exists()


def test_a_file_put_there_by_hand_is_checked_when_it_is_read(owner, cache):
    one = owner.offers(b"right")
    cache.mkdir(parents=True)
    (cache / "queries.jsonl").write_bytes(b"wrong")
    with pytest.raises(DownloadError, match="the published file has .*: delete it and download again"):
        verified(one, "mine")
    (cache / "queries.jsonl").write_bytes(b"right")
    assert verified(one, "mine").read_bytes() == b"right" and owner.asked == []


@pytest.mark.parametrize("name", tasks.LIVE)
def test_nothing_is_downloaded_unasked(name, cache):
    suite = suite_named(name)
    with pytest.raises(DownloadError, match="is not here yet, and nothing is downloaded unasked"):
        suite.tasks()
    assert not cache.exists() and all(one.url.startswith("https://") for one in suite.downloads)


def test_open_suite_says_that_the_file_is_missing():
    with pytest.raises(DownloadError, match="WebVoyager_test.jsonl of suite 'webvoyager' is not here yet"):
        tasks.open_suite(load_params("smoke", {"collect.suite": "webvoyager", "tasks.train": ["ArXiv"]}).params)


# -- formats and tasks


def test_lines_of_both_sources_give_site_start_and_goal():
    suite = suite_of(TEXT, live.read_lines, "train")
    found = [(t.key, t.site, t.goal, t.split) for t in suite.tasks()]
    assert found == [
        ("mine/Amazon/0", "amazon.com", "Buy a lamp. Begin at https://www.amazon.com/.", "train"),
        ("mine/ArXiv/1", "arxiv.org", "Find a paper on lamps. Begin at https://arxiv.org/.", "train"),
        ("mine/yelp/2", "yelp.com", "Which lamp shop is open? Begin at https://www.yelp.com.", "train"),
        ("mine/Google Search/3", "google.com", "Search for lamps. Begin at https://www.google.com/.", "train"),
    ]
    assert [t.name for t in suite_of(TEXT, live.read_paper_sites).tasks()] == ["ArXiv", "yelp"]


def test_mind2web_begins_at_the_site_of_its_first_key_node():
    nodes = [{"content": {"url": None}}, {"content": {"url": "https://www.yelp.com/search?q=x"}}]
    rows = [{"task": "Find a cafe", "evaluation": nodes}, {"task": "Find it", "evaluation": [{"content": {}}]}]
    first, second = suite_of(json.dumps(rows), live.read_key_nodes).tasks()
    assert (first.name, first.goal) == ("yelp.com", "Find a cafe. Begin at https://www.yelp.com/.")
    assert second.site == "google.com"


async def test_a_published_answer_is_compared_by_the_rule_of_its_suite():
    row = {"task_id": "x", "Level": 2, "Final answer": "The Castle, 1000 m", "web": "https://www.google.com/"}
    suite = suite_of(json.dumps(row | {"ques": "Where?"}), live.read_gaia, rule="gaia")
    [task] = suite.tasks()
    assert (task.name, task.site) == ("level 2", "bing.com")
    assert task.goal == "Where? Begin at https://www.bing.com/, search the web, and stop with a short answer."
    visit = await suite.visit(task)
    assert (visit.url, visit.hosts, await visit.start(None)) == ("https://www.bing.com/", {"*": "*"}, task.goal)
    assert await visit.state(None) == (False, None)
    answers = {"THE castle; 1000m": 1.0, "castle, 1000 m": 0.0, "the castle": 0.0, "": 0.0, "1000 m, the castle": 0.0}
    assert {text: await visit.answer(None, text) for text in answers} == answers
    await visit.close()
    ours = await suite_of(json.dumps(row | {"ques": "Where?"}), live.read_gaia).visit(task)
    answers = {
        "castle, 1,000 m.": 1.0,
        "1000 m and the castle": 1.0,
        "the castle": 0.0,
        "": 0.0,
        "castles, 1000 m": 0.0,
    }
    assert {text: await ours.answer(None, text) for text in answers} == answers
    assert suite.reference(task).answer == "The Castle, 1000 m"


def test_gaia_and_simpleqa_keep_their_own_rules():
    rules = {name: suite_named(name).rule for name in ("gaia_web", "simpleqa", "webvoyager")}
    assert rules == {"gaia_web": "gaia", "simpleqa": "model", "webvoyager": "match"}


async def test_without_a_published_answer_nothing_is_told():
    suite = suite_of(TEXT, live.read_lines)
    visit = await suite.visit(suite.tasks()[1])
    assert await visit.answer(None, "a lamp") is None


def test_simpleqa_takes_the_first_hundred_rows():
    rows = "".join(f'"{{}}","Who is number {i}, then?","Number {i}"\n' for i in range(120))
    suite = suite_of("metadata,problem,answer\n" + rows, live.read_simpleqa)
    assert len(suite.tasks()) == 100
    assert suite.tasks()[99].goal.startswith("Who is number 99, then? Begin at https://www.bing.com/, search")
    assert suite.queries[7][1].answer == "Number 7"


@pytest.mark.parametrize("text", ["{}", "not json", '[{"task": "x"}]'])
def test_a_file_of_another_format_is_refused_by_name(text):
    with pytest.raises(DownloadError, match="mine.txt is not in the format of http://127.0.0.1:1/mine.txt as we know"):
        suite_of(text, live.read_key_nodes if text[0] == "[" else live.read_lines).tasks()


def test_draws_go_round_and_test_splits_never_give_training_queries():
    suite = suite_of(TEXT, live.read_lines, "train")
    seeds = lambda *drawn: [t.seed for t in suite.draw(*drawn)]  # noqa: E731
    assert seeds("mine", "train", 0, 2) == [0, 1] and seeds("mine", "train", 7, 3) == [3, 0, 1]
    assert seeds("mine", "train", 2, 100) == [2, 3, 0, 1] and seeds("yelp", "train", 5, 2) == [2]
    assert seeds("mine", "test_seeds", 0, 5) == seeds("mine", "test_tasks", 0, 5) == []
    with pytest.raises(ParamsError, match="mine has no site or group 'arxiv' .*: did you mean ArXiv"):
        suite.draw("arxiv", "train", 0, 1)


def test_a_query_that_is_learnt_from_is_not_tested_on():
    both = suite_of(TEXT, live.read_lines, "train")
    more = TEXT + json.dumps(LINES[0] | {"ques": "Buy another lamp."})
    other = Download("more.txt", "", hashlib.sha256(more.encode()).hexdigest())
    (download.live_folder() / other.file).write_text(more)
    suite = live.Live("mine", "", "", (*both.parts, live.Part(other, "more", "test_seeds", live.read_lines)))
    assert [(t.seed, t.goal[:17]) for t in suite.tasks() if t.split != "train"] == [(4, "Buy another lamp.")]
    assert suite.note(suite.tasks()[4]) == {"group": "more"}


# -- an episode


class Says:
    """A policy that gives its answer at once."""

    name = "says"

    def __init__(self, answer: str):
        self.answer = answer

    async def act(self, task, history, observation):
        return did(f"stop [{self.answer}]")


def recording(folder: Path, task: Task, url: str, page: str):
    """As if `page` had been recorded at `url` in an episode of `task`."""
    response = {"status": 200, "statusText": "OK", "headers": [{"name": "Content-Type", "value": "text/html"}]}
    response["content"] = {"mimeType": "text/html", "text": page}
    entry = {"request": {"method": "GET", "url": url, "headers": []}, "response": response}
    file = har_file(folder, task)
    file.parent.mkdir(parents=True)
    with zipfile.ZipFile(file, "w") as archive:
        log = {"version": "1.2", "creator": {"name": "test", "version": "1"}, "entries": [entry]}
        archive.writestr("har.har", json.dumps({"log": log}))
    file.with_suffix(".json").write_text(json.dumps({"url": url, "hosts": {"*": "*"}}))


@pytest.mark.browser
async def test_an_episode_on_a_recorded_site_is_judged_by_its_answer_where_one_is_known(tmp_path):
    """No network: a real site's page from a recording. The answer is worth 1 or 0."""
    asks = suite_of("metadata,problem,answer\n{},Which river?,The Nile\n", live.read_simpleqa)
    [task] = asks.tasks()
    recording(tmp_path, task, "https://www.bing.com/", "<title>Bing</title><h1>Find</h1><input aria-label='Query'>")
    params = SMOKE.browser.model_copy(update={"har": "replay"})
    outcomes = {}
    async with Chromium(params) as chromium:
        for answer in ("nile", "Amazon"):
            environment = BrowserEnv(chromium, asks, params, SMOKE.observation, tmp_path)
            trajectory = await rollout(Says(answer), environment, task, max_steps=2)
            await environment.close()
            outcomes[answer] = (await RewardJudge().judge(trajectory)).outcome
    [step] = trajectory.steps
    assert (step.observation.url, step.observation.title) == ("https://www.bing.com/", "Bing")
    assert "heading 'Find'" in step.observation.text and step.observation.goal.startswith("Which river? Begin at")
    assert outcomes == {"nile": "success", "Amazon": "failure"}


# -- the owners' real files


@have_copies
def test_webvoyager_is_the_papers_473_queries_over_11_sites(cache):
    shutil.copytree(COPIES, cache)
    suite = suite_named("webvoyager")
    assert Counter(t.name for t in suite.tasks()) == PAPER_SITES and sum(PAPER_SITES.values()) == 473
    assert {t.split for t in suite.tasks()} == {"test_tasks"}
    assert [t.seed for t in suite.draw("Allrecipes", "test_tasks", 44, 2)] == [44, 0]
    with pytest.raises(ParamsError, match="'Amazon' .left out, as in the paper."):
        suite.draw("Amazon", "test_tasks", 0, 1)


@have_copies
def test_openwebvoyager_is_1516_queries_and_480_for_each_iteration(cache):
    shutil.copytree(COPIES, cache)
    suite = suite_named("openwebvoyager")
    files = [(part.download.file, len(part.read((cache / part.download.file).read_text()))) for part in suite.parts]
    assert [count for _, count in files[:5]] == [460, 165, 516, 300, 75]
    assert [count for _, count in files[5:11]] == [330, 150] * 3
    groups = Counter(suite.note(t)["group"] for t in suite.tasks() if t.split == "train")
    assert groups == {"il": 1516, "iter1": 480, "iter2": 480, "iter3": 480}
    assert len(suite.draw("iter2", "train", 123, 500)) == 480 and len(suite.draw("il", "train", 0, 9999)) == 1516
    assert Counter(t.name for t in suite.draw("iter1", "train", 0, 480))["airbnb"] == 10


@have_copies
def test_openwebvoyager_tests_on_no_query_it_trains_on(cache):
    """Of the published test queries 4 of the paper's 473 stand in the training files word for word."""
    shutil.copytree(COPIES, cache)
    suite = suite_named("openwebvoyager")
    train, test = ({t.goal for t in suite.tasks() if (t.split == "train") == which} for which in (True, False))
    assert train.isdisjoint(test)
    tested = Counter((suite.note(t)["group"], t.split) for t in suite.tasks() if t.split != "train")
    assert tested == {
        ("webvoyager", "test_seeds"): 469,
        ("cross_task", "test_seeds"): 112,
        ("cross_web", "test_sites"): 106,
    }
    new = {t.site for t in suite.tasks() if t.split == "test_sites"}
    assert len(new) == 6 and new.isdisjoint(t.site for t in suite.tasks() if t.split == "train")
