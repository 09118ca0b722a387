#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# In a new system, before its first boot: packages, users, a simulated card, and the unit that runs in_booted.sh.
set -euxo pipefail

export DEBIAN_FRONTEND=noninteractive
{ apt-get -q update &&
  apt-get -y -q install --no-install-recommends systemd systemd-sysv dbus adduser; } >/tmp/apt 2>&1 ||
  { tail -n 5 /tmp/apt; exit 77; }
dpkg -i /packages/old/sublet_*.deb /packages/old/sublet-simgpu_*.deb
for user in ana ben; do useradd --create-home --groups sublet "$user"; done
simgpu-ctl --dir /srv/gpu create 1x6GiB
chmod 755 /srv/gpu
chmod 1777 /srv/gpu/simgpu
sed -i -e 's|^#nvml = .*|nvml = "/usr/lib/simgpu/libnvidia-ml.so.1"|' \
  -e 's|^#driver = .*|driver = "/usr/lib/simgpu/libcuda.so.1"|' \
  -e 's|^#reserve = .*|reserve = "1MiB"|' /etc/sublet/sublet.toml  # simulated memory is sparse
# A simulated card is a file. A real card is a device, which the units allow as they are.
for unit in subletd sublet-actor; do
  mkdir -p "/etc/systemd/system/$unit.service.d"
  printf '[Service]\nEnvironment=SIMGPU_DIR=/srv/gpu/simgpu\nReadWritePaths=/srv/gpu/simgpu\n' \
    >"/etc/systemd/system/$unit.service.d/test.conf"
done
printf '%s\n' 'ExecStart=' "$(sed -n 's/^ExecStart=.*/&/p' /usr/lib/systemd/system/sublet-actor.service) \
--driver /usr/lib/simgpu/libcuda.so.1 --env SIMGPU_DIR=/srv/gpu/simgpu" \
  >>/etc/systemd/system/sublet-actor.service.d/test.conf
cat >/etc/systemd/system/package-test.service <<'UNIT'
[Unit]
After=multi-user.target
FailureAction=poweroff-force
[Service]
Type=exec
ExecStart=/bin/bash /packages/in_booted.sh
StandardOutput=append:/packages/transcript
StandardError=append:/packages/transcript
# The programs of the test have the environment of a service, as those of a timer would.
KillMode=process
[Install]
WantedBy=multi-user.target
UNIT
ln -sf /etc/systemd/system/package-test.service /etc/systemd/system/multi-user.target.wants/
