# SPDX-License-Identifier: Apache-2.0
"""A cooperative program with a webhook; it answers at once, or when the test says so."""
import contextlib
import http.server
import json
import threading


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"yield": "yielded", "resume": "resumed"}[order["order"]]
        body = json.dumps({"answer": answer}).encode() if self.server.at_once else b""
        self.send_response(200 if self.server.at_once else 202)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def webhook(at_once=True):
    """Returns the body with which a lease's program registers this webhook."""
    server = http.server.HTTPServer(("127.0.0.1", 0), _Handler)
    server.at_once = at_once
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield {"way": "webhook", "url": f"http://127.0.0.1:{server.server_port}/"}
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
