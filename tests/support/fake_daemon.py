# SPDX-License-Identifier: Apache-2.0
"""A daemon for tests of libsublet: it answers what the test sets, when the test says."""
import contextlib
import http.server
import json
import socketserver
import threading
import urllib.parse


class FakeDaemon:
    """Gives the orders of one lease. `answers` holds the program's answers as pairs of a number and a word."""

    def __init__(self):
        self.order = {"order": "none", "number": 0}
        self.ended = 0  # HTTP status of a lease that has ended; 0: the lease lives
        # number of the last order that the program has handled: the program has asked for the next order
        self.heard = 0
        self.end_for = None  # number of requests after which the lease exists again; None: never
        self.asked_while_ended = 0  # requests while the lease was ended
        self.answers = []
        self.withdrawal = (200, {})  # the reply to a program that withdraws its registration
        self.follows = {}  # orders that are given before the reply to an answer, by the answer's number
        self.changed = threading.Condition()
        self.closed = False

    def give(self, order, number):
        with self.changed:
            self.order = {"order": order, "number": number, "deadline_seconds": 60.0, "reason": "the test wants it"}
            self.changed.notify_all()

    def give_before_answering(self, answer, order, number):
        """Gives the order after the program's answer of that number. The reply to that answer is sent only when the
        program has the order.
        """
        self.follows[answer] = (order, number)

    def end(self, status, questions=None):
        with self.changed:
            self.ended = status
            self.end_for = questions
            self.changed.notify_all()

    def wait(self, condition, what):
        with self.changed:
            assert self.changed.wait_for(condition, 60), f"waited in vain for: {what} ({self.answers})"

    # --- requests, each on a thread of its own ---

    def next_order(self, since):
        with self.changed:
            self.heard = since
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.ended or self.closed or self.order["number"] != since)
            ended = self.ended
            self.asked_while_ended += ended != 0
            if ended and self.asked_while_ended == self.end_for:
                self.ended = 0
            self.changed.notify_all()
            return (ended, {"detail": "it has ended"}) if ended else (200, self.order)

    def take(self, answer):
        number = answer["number"]
        with self.changed:
            self.answers.append((number, answer["answer"]))
            self.changed.notify_all()
        if number in self.follows:
            self.give(*self.follows[number])
            with self.changed:
                self.changed.wait_for(lambda: self.closed or self.heard == self.follows[number][1])
        return 200, {}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        self.reply(*self.server.fake.next_order(int(query["since"][0])))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply(*self.server.fake.take(body) if self.path.endswith("/answer") else (200, {}))

    def do_DELETE(self):
        self.reply(*self.server.fake.withdrawal)

    def reply(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):  # the program has ended
            self.wfile.write(body)

    def address_string(self):
        return "a program"

    def log_message(self, *_):
        pass


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def fake_daemon(path):
    """Serves at the Unix socket `path`."""
    fake = FakeDaemon()
    server = _Server(str(path), _Handler)
    server.fake = fake
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield fake
    finally:
        with fake.changed:
            fake.closed = True
            fake.changed.notify_all()
        server.shutdown()
        serving.join()
        server.server_close()
