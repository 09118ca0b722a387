# SPDX-License-Identifier: Apache-2.0
"""The agent's connection to the API server: certificates, tokens, old versions, servers that hang or lie."""
import socket
import ssl
import subprocess
import threading

import pytest

from tests.support.kubelet import Pod
from tests.support.sublet import wait_until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Returns a folder with two authorities and a certificate of each for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    for name in ("right", "wrong"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.crt",
                "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
    return folder


def with_tls(node, certificates, name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.crt", certificates / f"{name}.key")
    server = node.api.server
    server.socket = context.wrap_socket(server.socket, server_side=True)
    token = node.daemon.dir / "token"
    token.write_text("secret-1\n")
    node.flags = ("--api-server", node.api.url.replace("http:", "https:"), "--ca-file", certificates / "right.crt",
                  "--token-file", token)
    return token


def test_a_server_with_the_right_certificate_gets_the_token(start_node, certificates):
    node = start_node("1x4GiB", agent=False)
    token = with_tls(node, certificates, "right")
    node.start()
    node.kubelet.run(Pod("train", 1), "sleep", "600")
    assert set(node.api.tokens) == {"Bearer secret-1"}
    token.write_text("secret-2\n")  # the kubelet renews it
    node.kubelet.run(Pod("second", 1), "sleep", "600")
    assert node.api.tokens[-1] == "Bearer secret-2"


def test_a_server_with_another_certificate_gets_nothing(start_node, certificates):
    node = start_node("1x4GiB", agent=False)
    with_tls(node, certificates, "wrong")
    node.start()
    pod = node.kubelet.admit(Pod("train", 1))
    node.kubelet.make_sandbox(pod)
    with pytest.raises(Exception, match="certificate verify failed"):
        node.kubelet.start_container(pod)
    assert node.api.tokens == [] and node.daemon.leases() == []


def test_a_cluster_without_dynamic_resource_allocation_has_the_plugin(start_node):
    node = start_node("1x4GiB", agent=False)
    node.api.unknown = "/apis/resource.k8s.io"
    node.start()
    wait_until(lambda: "--doors plugin" in node.text(), "the agent says what it lacks")
    node.kubelet.run(Pod("train", 1), "sleep", "600")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", b"SSH-2.0-x\r\n",
                                    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
                                    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno!",
                                    b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
                                    b'HTTP/1.1 403 Forbidden\r\nContent-Length: 13\r\n\r\n{"message":7}'])
def test_a_server_that_lies_or_hangs_up_is_no_pod(start_node, answer):
    node = start_node("1x4GiB", "--doors", "plugin", agent=False)
    liar = socket.create_server(("127.0.0.1", 0))

    def lie():
        while True:
            try:
                connection, _ = liar.accept()
            except OSError:
                return
            connection.recv(4096)
            connection.sendall(answer)
            connection.close()

    thread = threading.Thread(target=lie)
    thread.start()
    try:
        node.flags += ("--api-server", f"http://127.0.0.1:{liar.getsockname()[1]}")
        node.start()
        pod = node.kubelet.admit(Pod("train", 1))
        node.kubelet.make_sandbox(pod)
        with pytest.raises(Exception, match="API server"):
            node.kubelet.start_container(pod)
        assert node.agent.poll() is None and node.daemon.leases() == []
    finally:
        liar.shutdown(socket.SHUT_RDWR)
        liar.close()
        thread.join()


@pytest.mark.parametrize("status", [401, 429, 503])
def test_a_priority_class_that_the_server_does_not_tell_now_is_not_guessed(node, status):
    node.api.add_class("night", 2000, {"sublet.dev/tier": "batch"})
    node.api.refused = ("/apis/scheduling.k8s.io", status)
    pod = node.kubelet.admit(Pod("train", 1, priorityClassName="night"))
    node.kubelet.make_sandbox(pod)
    with pytest.raises(Exception, match=f"night: {status} told to refuse"):
        node.kubelet.start_container(pod)
    assert node.daemon.leases() == []
    node.api.refused = ("/none", 0)
    node.kubelet.started(pod)
    assert node.lease(pod)["tier"] == "batch"
