# SPDX-License-Identifier: Apache-2.0
"""A server that takes webhooks, and answers as the test says."""
import http.server
import threading


class Receiver:
    """`calls`: (path, headers, body text) of each POST. `status`: of the answers; a list is used up first. `hang`: no
    answer comes while it is set.
    """

    def __init__(self, port=0, tls=None):
        """`tls`: an ssl.SSLContext."""
        self.calls, self.status, self.first, self.headers, self.body = [], 200, [], {}, b""
        self.hang = threading.Event()
        self.released = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                receiver.calls.append((self.path, dict(self.headers), body))
                if receiver.hang.is_set():
                    receiver.released.wait(60)
                    return
                status = receiver.first.pop(0) if receiver.first else receiver.status
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(receiver.body)))
                self.end_headers()
                self.wfile.write(receiver.body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def bodies(self):
        return [body for _, _, body in self.calls]

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


# A target that no event passes its filter for, at a port where nobody listens.
NOBODY = '[[events.webhook]]\nname = "nobody"\nurl = "http://127.0.0.1:9/"\nuser = "nobody"\n'
