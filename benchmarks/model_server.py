"""An OpenAI-compatible server of one model that takes exactly the same time for every call, however many come at once.

A process of its own, so that it takes no time of the caller's: `model_server(latency)` starts it on a
free port and ends it. It answers for every role with what makes look-ahead go on longest. Used by
lookahead.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator

MODEL = "latency"  # how it is called
DOORS = 8


def room(number: int) -> str:
    """A page with DOORS links."""
    doors = [f"[{i + 2}] link 'Door {i + 1}'" for i in range(DOORS)]
    return "\n".join([f"[1] heading 'Room {number}'", *doors])


def reply_to(body: dict) -> str:
    """What makes a decision longest: a page that changes, a room in it, and a door that was not named before."""
    last, choices = body["messages"][-1], body.get("structured_outputs", {}).get("choice")
    if choices:
        return "changed" if "changed" in choices else choices[0]
    if last["role"] == "assistant":  # the world model has said `changed`
        return room(99)
    door = 2 + last["content"].count("Action:")  # of the candidates that were named
    return f"Thought: I take another door. Action: ```click [{door}]```"


def completion(body: dict) -> dict:
    message = {"role": "assistant", "content": reply_to(body)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, latency: float):
    """One connection: the list of models at once, a completion exactly `latency` after its request has come."""
    clock = asyncio.get_running_loop().time
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            due = clock() + latency
            told = completion(json.loads(body)) if body else {"object": "list", "data": [{"id": MODEL}]}
            data = json.dumps(told).encode()
            await asyncio.sleep(due - clock() if body else 0)
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            await writer.drain()
    writer.close()


async def serve(latency: float):
    """Prints its port and answers until it is ended."""
    server = await asyncio.start_server(lambda *streams: answer(*streams, latency), "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def model_server(latency: float) -> Iterator[str]:
    """The URL of a running server that takes `latency` seconds a call."""
    process = subprocess.Popen([sys.executable, __file__, str(latency)], stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
