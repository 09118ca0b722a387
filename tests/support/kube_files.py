# SPDX-License-Identifier: Apache-2.0
"""The configuration of a cluster on one machine: etcd, the control plane, containerd and kubelet."""
import json
import secrets
import subprocess

# The kubelet would set these for the whole machine. It finds them in files of its own, and changes nothing.
KERNEL = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
          "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}
USERS = {"admin": ("admin", "system:masters"), "node": ("system:node:n1", "system:nodes")}
CONTROLLERS = ("serviceaccount-controller", "root-ca-certificate-publisher-controller", "daemonset-controller",
               "replicaset-controller", "deployment-controller", "job-controller", "resourcequota-controller",
               "namespace-controller", "garbage-collector-controller", "resourceclaim-controller",
               "pod-garbage-collector-controller", "node-lifecycle-controller", "taint-eviction-controller",
               "endpointslice-controller", "validatingadmissionpolicy-status-controller")

CONTAINERD = """version = 3
root = '{dir}/containerd'
state = '{dir}/containerd-state'
disabled_plugins = ['io.containerd.nri.v1.nri']
[grpc]
  address = '{dir}/containerd.sock'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = 'docker.io/sublet-test/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  enable_cdi = true
  cdi_spec_dirs = ['/etc/cdi', '/var/run/cdi']
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{dir}/cni']
    conf_dir = '{dir}/cni/conf'
    use_internal_loopback = true
"""

# Pods of the tests need no network: this plugin only gives them an address.
NETWORK = """#!/bin/sh
[ "$CNI_COMMAND" = ADD ] || [ "$CNI_COMMAND" = CHECK ] || { [ "$CNI_COMMAND" != VERSION ] ||
  echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'; exit 0; }
echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'"$CNI_NETNS"'"}],'
echo '"ips":[{"address":"192.0.2.8/24","interface":0}]}'
"""

# The machine has version 1 of control groups or both. Nothing is evicted for the machine's own full disk.
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "address": "127.0.0.1",
    "readOnlyPort": 0, "healthzPort": 0, "failCgroupV1": False, "cgroupDriver": "cgroupfs", "failSwapOn": False,
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"}, "makeIPTablesUtilChains": False, "oomScoreAdj": 0,
    "evictionHard": {"memory.available": "1Mi"}, "imageGCHighThresholdPercent": 100, "maxPods": 60,
    "nodeStatusUpdateFrequency": "2s", "syncFrequency": "5s", "serializeImagePulls": False,
    # An agent that tests kill again and again comes back soon. Otherwise the kubelet waits for up to five minutes.
    "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}, "featureGates": {"KubeletCrashLoopBackOffMax": True},
    "shutdownGracePeriod": "0s", "registerNode": True, "enforceNodeAllocatable": ["pods"],
}


def kubeconfig(port, token, authority):
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": f"https://127.0.0.1:{port}",
                                                "certificate-authority": str(authority)}}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]})


def write_certificates(folder):
    """Makes the key that signs tokens of service accounts, and a certificate for 127.0.0.1."""
    folder.mkdir()
    subprocess.run(["openssl", "genrsa", "-out", folder / "accounts.key", "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc", "-keyout",
                    folder / "serving.key", "-out", folder / "serving.crt"], check=True, capture_output=True)


def write_files(folder, ports):
    """Writes all files below the folder and returns the tokens by the names of USERS."""
    for name in ("agent", "cdi", "cni/conf", "kubelet", "podlogs", "plugins", "kernel"):
        (folder / name).mkdir(parents=True)
    write_certificates(folder / "pki")
    tokens = {name: secrets.token_hex(16) for name in USERS}
    (folder / "tokens.csv").write_text("".join(f'{tokens[name]},{user},{user},"{group}"\n'
                                               for name, (user, group) in USERS.items()))
    for name in USERS:
        (folder / f"{name}.kubeconfig").write_text(kubeconfig(ports["api"], tokens[name], folder / "pki/serving.crt"))
    (folder / "containerd.toml").write_text(CONTAINERD.format(dir=folder))
    network = folder / "cni/only-an-address"
    network.write_text(NETWORK)
    network.chmod(0o755)
    (folder / "cni/conf/1.conflist").write_text(json.dumps(
        {"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "only-an-address"}]}))
    (folder / "kubelet.json").write_text(json.dumps(dict(
        KUBELET, port=ports["kubelet"], containerRuntimeEndpoint=f"unix://{folder}/containerd.sock",
        podLogsDir=str(folder / "podlogs"), volumePluginDir=str(folder / "plugins"))))
    (folder / "hosts").write_text("127.0.0.1 localhost n1\n")
    for number, value in enumerate(KERNEL.values()):
        (folder / f"kernel/{number}").write_text(value + "\n")
    return tokens


def commands(folder, ports):
    """Returns the command of each part of the cluster."""
    keys, admin = folder / "pki", folder / "admin.kubeconfig"
    return {
        "etcd": ["etcd", "--data-dir", folder / "etcd", "--unsafe-no-fsync", "--logger=zap", "--log-level=warn",
                 f"--listen-client-urls=http://127.0.0.1:{ports['etcd']}",
                 f"--advertise-client-urls=http://127.0.0.1:{ports['etcd']}",
                 f"--listen-peer-urls=http://127.0.0.1:{ports['peer']}"],
        "apiserver": [
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{ports['etcd']}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={ports['api']}", "--endpoint-reconciler-type=none",
            f"--tls-cert-file={keys}/serving.crt", f"--tls-private-key-file={keys}/serving.key",
            f"--cert-dir={keys}", f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=Node,RBAC",
            "--service-cluster-ip-range=198.51.100.0/24", "--service-account-issuer=https://sublet.test",
            f"--service-account-key-file={keys}/accounts.key", "--enable-admission-plugins=NodeRestriction",
            f"--service-account-signing-key-file={keys}/accounts.key", "--allow-privileged=true", "--profiling=false",
            "--kubelet-preferred-address-types=Hostname"],
        "controller-manager": [
            "kube-controller-manager", f"--kubeconfig={admin}", "--leader-elect=false", "--secure-port=0",
            f"--root-ca-file={keys}/serving.crt", f"--service-account-private-key-file={keys}/accounts.key",
            f"--controllers={','.join(CONTROLLERS)}", "--profiling=false", "--node-monitor-grace-period=50s"],
        "scheduler": ["kube-scheduler", f"--kubeconfig={admin}", "--leader-elect=false", "--secure-port=0"],
        "containerd": ["containerd", "--config", folder / "containerd.toml"],
        "kubelet": ["kubelet", f"--config={folder}/kubelet.json", f"--kubeconfig={folder}/node.kubeconfig",
                    "--hostname-override=n1", "--v=2"],
    }
