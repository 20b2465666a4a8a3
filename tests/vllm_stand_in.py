"""A model server that speaks what we use of vLLM's, in place of `vllm serve`: started through `serve.command`.

`python vllm_stand_in.py <a folder> <how> <vLLM's words>`: what it was asked stands in the folder's
`asked.jsonl`, the pid of a process that it starts in `child`. `how` says what is wrong with it. Its
answer to a free question is the name of the model that was asked, so that adapters differ. Of choices it says
the last: the first has a chance of 1, the second of 2, and so on, and it tells these.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

import toy_tokens
from json_handler import JsonHandler


def read_words(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("base")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--max-model-len", type=int)
    return parser.parse_known_args(words)[0]


def main(folder: Path, how: str, words: list[str]):
    given, key = read_words(words), os.environ["VLLM_API_KEY"]
    served = [given.base]
    if how == "out_of_memory":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
        print("\n".join(f"  frame {i}" for i in range(30)))
        sys.exit(1)
    if how == "never_healthy":
        time.sleep(600)
    if how == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        (folder / "child").write_text(str(child.pid))
    if how == "stubborn":
        signal.signal(signal.SIGTERM, lambda *_: print("I stay", flush=True))
    if how == "another_model":
        served[0] = "somebody/elses"

    class Handler(JsonHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            if self.path == "/health":
                return self.answer(200, {})
            if self.refused():
                return None
            return self.answer(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in served]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("tokenize"):
                told = {"tokens": toy_tokens.tokenize(body["prompt"])} if "prompt" in body else None
                return self.answer(200, told or {"prompt": toy_tokens.detokenize(body["tokens"])})
            if self.refused():
                return None
            with (folder / "asked.jsonl").open("a") as asked:
                asked.write(json.dumps([self.path.rpartition("/")[2], body]) + "\n")
            match self.path:
                case "/v1/load_lora_adapter" if how == "no_memory_for_adapters":
                    print("torch.OutOfMemoryError: CUDA out of memory.", flush=True)
                    os._exit(1)
                case "/v1/load_lora_adapter" if how == "no_adapters":
                    return self.answer(400, {"error": {"message": "LoRA rank 128 is greater than max_lora_rank 64"}})
                case "/v1/load_lora_adapter" if os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True":
                    served.append(body["lora_name"])
                    return self.answer(200, {})
                case "/v1/unload_lora_adapter":
                    served.remove(body["lora_name"])
                    return self.answer(200, {})
                case "/v1/chat/completions" if body["model"] in served:
                    return self.complete(body)
            return self.answer(404, {"error": {"message": f"no {self.path} or model"}})

        def complete(self, body: dict):
            if "die" in body["messages"][-1]["content"]:
                print("EngineDeadError: the engine has died", flush=True)
                os._exit(3)
            choices = body.get("structured_outputs", {}).get("choice")
            text = choices[-1] if choices and how not in ("no_constraint", "rambles") else f"I am {body['model']}"
            finish = "length" if how == "rambles" else "stop"
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
            if body.get("logprobs") and choices and how not in ("no_constraint", "rambles"):
                weights = {one: (i + 1) / sum(range(len(choices) + 1)) for i, one in enumerate(choices)}
                choice["logprobs"] = {"content": toy_tokens.complete({"": weights}, choices)[1]}
            told = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
            self.answer(200, told | {"usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}})

        def refused(self) -> bool:
            if how == "no_key" or self.headers["Authorization"] == f"Bearer {key}":
                return False
            self.answer(401, {"error": "Unauthorized"})
            return True

    ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
