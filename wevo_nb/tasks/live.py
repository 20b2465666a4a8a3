"""Queries for real sites: WebVoyager, Mind2Web-Live, OpenWebVoyager's training set, GAIA-web, SimpleQA.

The files are downloaded from their owners on request (download.py) and never shipped. A query has
no rule of success of its own: a judge decides, except where a short reference answer is published.
A task's seed is its position in the suite's files. Paper: section 4.1. Used by notebooks 01 and 05.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
from collections.abc import Callable
from functools import cached_property
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from wevo_nb.answers import quasi_exact, same_answer
from wevo_nb.params import ParamsError
from wevo_nb.schema import Split, Task
from wevo_nb.tasks.download import Download, DownloadError, fetch, verified

OWV = "https://raw.githubusercontent.com/MinorJerry/OpenWebVoyager/94efd6ff35e9cdbe30ba2729524777426dcee3b1/WebVoyager/"
M2W = "https://huggingface.co/datasets/iMeanAI/Mind2Web-Live/resolve/160677b57f6a608e6d63b51849a33d2920b35588/"
BING = "https://www.bing.com/"
SIMPLEQA_ROWS = 100  # the paper asks the first 100
# 643 queries without these four sites are the paper's 473; its code names no reason, and they are
# known to meet automated browsers with human-verification pages or other prices by place.
LEFT_OUT = ("Amazon", "Booking", "Google Flights", "Google Search")
ANY_PUBLIC_HOST = {
    "*": "*"
}  # real pages live on many hosts; addresses of this machine and of private networks are refused


# How an answer is compared with the published one: by answers.same_answer, by GAIA's rule, or by a model that grades it
# (judge.AnswerJudge; without one by same_answer).
AnswerRule = Literal["match", "gaia", "model"]


class Query(NamedTuple):
    """One line of a file."""

    text: str
    name: str  # its site, or its level
    url: str  # where it begins
    answer: str | None = None  # the published short answer


class Part(NamedTuple):
    """A file of a suite: what it is called in tasks.train, its split, and how it is read."""

    download: Download
    group: str
    split: Split
    read: Callable[[str], list[Query]]


class Live:
    """Lists and starts the queries of its files. Nothing is served: `with` opens and closes nothing."""

    def __init__(self, name: str, licence: str, about: str, parts: tuple[Part, ...], rule: AnswerRule = "match"):
        self.name, self.licence, self.about, self.parts, self.rule = name, licence, about, parts, rule

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_):
        pass

    @property
    def downloads(self) -> list[Download]:
        return [part.download for part in self.parts]

    def download(self):
        """Fetches what is not here yet. Raises DownloadError."""
        for download in self.downloads:
            fetch(download, self.name)

    @cached_property
    def queries(self) -> list[tuple[Part, Query]]:
        """Those of all files in order, without test queries that are to be learnt from as well.

        Raises DownloadError where a file is missing, changed or unlike its format.
        """
        found = []
        for part in self.parts:
            path = verified(part.download, self.name)
            try:
                found += [(part, query) for query in part.read(path.read_text(encoding="utf-8"))]
            except (KeyError, ValueError, TypeError) as problem:
                raise DownloadError(
                    f"{path} is not in the format of {part.download.url} as we know it: "
                    f"{type(problem).__name__} {problem}; delete it and download it again"
                ) from problem
        learnt = {query.text for part, query in found if part.split == "train"}
        return [(part, query) for part, query in found if part.split == "train" or query.text not in learnt]

    def tasks(self) -> list[Task]:
        return [self._task(position) for position in range(len(self.queries))]

    def draw(self, name: str, split: Split, start: int, count: int) -> list[Task]:
        """Tasks of a site or of a file's group, from `start` on and round again; none twice.

        Queries to learn from and to test on are apart by file, so every test split means the
        latter; a task keeps the split of its file. Raises ParamsError on an unknown name.
        """
        named = [t for t in self.tasks() if name in (t.name, self.note(t)["group"])]
        if not named:
            names = sorted({t.name for t in self.tasks()} | {part.group for part in self.parts})
            near = difflib.get_close_matches(name, names, n=3) or names[:3]
            left = " (left out, as in the paper)" if name in LEFT_OUT else ""
            raise ParamsError(
                f"{self.name} has no site or group '{name}'{left} (tasks.train, tasks.held_out): "
                f"did you mean {', '.join(near)}? 'wevo tasks {self.name}' lists them"
            )
        wanted = [t for t in named if (t.split == "train") == (split == "train")]
        return [wanted[(start + i) % len(wanted)] for i in range(min(count, len(wanted)))]

    def note(self, task: Task) -> dict[str, str]:
        return {"group": self.queries[task.seed][0].group}

    async def visit(self, task: Task) -> LiveVisit:
        return LiveVisit(task, self.reference(task), self.rule)

    def reference(self, task: Task) -> Query:
        """The query of a task, with the published answer where there is one."""
        return self.queries[task.seed][1]

    def _task(self, position: int) -> Task:
        part, query = self.queries[position]
        told = f"Begin at {query.url}"
        told += ", search the web, and stop with a short answer." if query.url == BING else "."
        site = urlsplit(query.url).netloc.removeprefix("www.")
        text = query.text.strip()
        goal = f"{text}{'' if text[-1] in '.?!' else '.'} {told}"
        return Task(suite=self.name, name=query.name, seed=position, goal=goal, site=site, split=part.split)


class LiveVisit:
    """One query on a fresh page of its site."""

    def __init__(self, task: Task, query: Query, rule: AnswerRule):
        self.task, self.query, self.rule = task, query, rule
        self.url, self.hosts = query.url, ANY_PUBLIC_HOST

    async def start(self, page) -> str:
        return self.task.goal

    async def state(self, page) -> tuple[bool, float | None]:
        """Never over by itself."""
        return False, None

    async def answer(self, page, text: str) -> float | None:
        """1 where the published answer was given, by the suite's rule without a model, else 0; None without one."""
        if self.query.answer is None:
            return None
        if self.rule == "gaia":
            return float(quasi_exact(text, self.query.answer))
        return float(same_answer(text, self.query.answer, self.query.text))

    async def close(self):
        """Nothing to give back."""


# -- formats


def read_lines(text: str) -> list[Query]:
    """WebVoyager and OpenWebVoyager: a query with its site on each line; those of a search engine name none."""
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    site = lambda row: row.get("web_name") or row.get("website") or "Google Search"  # noqa: E731
    return [Query(row["ques"], site(row), row["web"]) for row in rows]


def read_paper_sites(text: str) -> list[Query]:
    """WebVoyager without the sites that the paper leaves out."""
    return [query for query in read_lines(text) if query.name not in LEFT_OUT]


def read_gaia(text: str) -> list[Query]:
    """GAIA-web: the same lines with an answer; the paper starts them at Bing."""
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [Query(row["ques"], f"level {row['Level']}", BING, str(row["Final answer"])) for row in rows]


def read_key_nodes(text: str) -> list[Query]:
    """Mind2Web-Live: tasks without a start page; the first address among their key nodes names the site."""
    queries = []
    for row in json.loads(text):
        addresses = [node["content"].get("url") for node in row["evaluation"]]
        first = urlsplit(next((a for a in addresses if a), "https://www.google.com/"))
        site = first.netloc.removeprefix("www.")
        queries.append(Query(row["task"], site, f"{first.scheme}://{first.netloc}/"))
    return queries


def read_simpleqa(text: str) -> list[Query]:
    rows = list(csv.DictReader(io.StringIO(text)))[:SIMPLEQA_ROWS]
    return [Query(row["problem"], "bing", BING, row["answer"]) for row in rows]


# -- suites


def _owv(folder: str, file: str, group: str, split: Split, sha256: str, read=read_lines) -> Part:
    return Part(Download(file, f"{OWV}{folder}/{file}", sha256), group, split, read)


def _webvoyager(split: Split) -> Part:
    sha256 = "c9009bc37222a3d631cc29aaa8dc15e7e990fdd5aafd811c811b5c85ceda70b4"
    return _owv("data_for_test", "WebVoyager_test.jsonl", "webvoyager", split, sha256, read_paper_sites)


def webvoyager() -> Live:
    return Live(
        "webvoyager",
        "queries of WebVoyager as the OpenWebVoyager repository holds them, Apache-2.0",
        f"the paper's 473 of 643 queries, 11 of 15 sites; left out: {', '.join(LEFT_OUT)} "
        "(no reason is published; they tend to stop automated browsers)",
        (_webvoyager("test_tasks"),),
    )


def openwebvoyager() -> Live:
    return Live(
        "openwebvoyager",
        "queries of OpenWebVoyager, Apache-2.0; some are Mind2Web's, CC BY 4.0",
        "groups: il (1,516 training queries, the paper's), iter1 to iter3 (480 more for each iteration); to test on: "
        "webvoyager (the paper's 473 without 4 that stand in il as well), cross_task (known sites), "
        "cross_web (new sites)",
        (*(_owv(*part) for part in TRAINING), _webvoyager("test_seeds"), *(_owv(*part) for part in TESTS)),
    )


def mind2web() -> Live:
    return Live(
        "mind2web",
        "Mind2Web-Live of iMean AI, CC BY 4.0",
        "the 104 test tasks of October 2024; the paper's filtered 53 are not published, so they cannot be chosen here; "
        "they begin at the site of their first key node, and are not scored by key nodes",
        (Part(Download(M2W_FILE, M2W + M2W_FILE), "mind2web", "test_tasks", read_key_nodes),),
    )


def gaia_web() -> Live:
    url = "https://raw.githubusercontent.com/MinorJerry/WebVoyager/main/data/GAIA_web.jsonl"
    return Live(
        "gaia_web",
        "90 questions of GAIA's validation set chosen by WebVoyager's authors; GAIA itself is gated at "
        "huggingface.co/datasets/gaia-benchmark/GAIA: accept its terms there, and do not publish the answers",
        "26 of level 1, 64 of level 2; begins at Bing; compared by GAIA's own rule (the paper: by GPT-4o)",
        (Part(Download("GAIA_web.jsonl", url), "gaia_web", "test_tasks", read_gaia),),
        "gaia",
    )


def simpleqa() -> Live:
    url = "https://openaipublic.blob.core.windows.net/simple-evals/simple_qa_test_set.csv"
    return Live(
        "simpleqa",
        "SimpleQA of OpenAI, MIT",
        f"the first {SIMPLEQA_ROWS} questions; begins at Bing; graded by a model, as officially",
        (Part(Download("simple_qa_test_set.csv", url), "simpleqa", "test_tasks", read_simpleqa),),
        "model",
    )


M2W_FILE = "mind2web-live_test_20241024.json"
TRAINING = (
    ("data_for_training/IL", "general_google_search_460q.jsonl", "il", "train",
     "feabff52d1deb8b62a91b7e2a149e05b8c762b030a68e6c1d5935c5d4189e0fa"),
    ("data_for_training/IL", "mind2web_human_extend_165q.jsonl", "il", "train",
     "8f2b48cdde86dcb36cfc182e2ea46160a2232c9eaaa3fb34e9eed6582c144512"),
    ("data_for_training/IL", "mind2web_selected_web_516q.jsonl", "il", "train",
     "3a0b9eaffac336d72409c4ddeb30b7b4dbbf21c202a0972227210f8aa685fb27"),
    ("data_for_training/IL", "webvoyager_extend_300q.jsonl", "il", "train",
     "5c5ec4634c76beeffaed6b8a8b34ad6043a5df66c0d2a640048450a1303c497f"),
    ("data_for_training/IL", "webvoyager_human_extend_75q.jsonl", "il", "train",
     "22ef858bead31080833a7878fdcfcc862915cf1a2acbf7beb77f370bc73081df"),
    ("data_for_training/optim_iter1", "mind2web_for_iter1_330q.jsonl", "iter1", "train",
     "e9377caa03676908bf702d697c7b99e6b46ec7ec9b0a0b60e2ffd21bc57c9409"),
    ("data_for_training/optim_iter1", "webvoyager_for_iter1_150q.jsonl", "iter1", "train",
     "b45897e1097c60473a4197e7311fc388128a0003a1c401658650ebcae0a10936"),
    ("data_for_training/optim_iter2", "mind2web_for_iter2_330q.jsonl", "iter2", "train",
     "2365034397336335a4b6b4f0aecaa6830f6523e138578cfef0f03ce4bc8426ad"),
    ("data_for_training/optim_iter2", "webvoyager_for_iter2_150q.jsonl", "iter2", "train",
     "a5d63b10456547aa53155dd276c3345cedfcfe63dec58505d6964745a594a83e"),
    ("data_for_training/optim_iter3", "mind2web_for_iter3_330q.jsonl", "iter3", "train",
     "185f71b23f8bab812b3191efab7bc03d99cd889edc307d3ccc544fdf9336a9e2"),
    ("data_for_training/optim_iter3", "webvoyager_for_iter3_150q.jsonl", "iter3", "train",
     "fa745cb659c3e4446bc36554ca527e498edde932cd60b617235c281e4368aa64"),
)  # fmt: skip
TESTS = (
    ("data_for_test", "mind2web_test_cross_task.jsonl", "cross_task", "test_seeds",
     "40c8d9250f4adeaef73b48b16b0e315ea456a43ac73bc8136509fa6b8c0934ff"),
    ("data_for_test", "mind2web_test_cross_web.jsonl", "cross_web", "test_sites",
     "621c4f9fedc7f137fe4d82a894a00717cdf322efa8b99d4e250457d57a0b7524"),
)  # fmt: skip
