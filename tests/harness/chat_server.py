"""A small real HTTP server that speaks the chat API, as a test wants it to answer."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any], int], Any]


class ChatServer:
    """Answers `/v1/chat/completions` by `answer(body, round)`: a message, or a status code."""

    def __init__(self) -> None:
        self.answer: Answer = lambda body, round_: {"content": "hello"}
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.bodies.append(body)
                outer.keys.append(self.headers.get("authorization", ""))
                said = outer.answer(body, len(outer.bodies))
                status, data = (
                    (said, {"error": {"message": "no"}})
                    if isinstance(said, int)
                    else (200, self._body(said))
                )
                payload = json.dumps(data).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(payload)))
                self.end_headers()
                with suppress(BrokenPipeError):  # a client that has waited long enough
                    self.wfile.write(payload)

            @staticmethod
            def _body(message: dict[str, Any]) -> dict[str, Any]:
                choice = {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": None, **message},
                }
                return {
                    "id": "c",
                    "object": "chat.completion",
                    "created": 0,
                    "model": "m",
                    "choices": [choice],
                }

            def log_message(self, *_: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def __enter__(self) -> "ChatServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
