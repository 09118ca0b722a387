// SPDX-License-Identifier: Apache-2.0
#include "actor/protected_programs.h"

#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <filesystem>

namespace sublet::actor {
namespace {

// Logins and system buses; display servers, compositors and desktops; remote desktops; the driver's daemons; services
// that run the programs of all users.
constexpr std::string_view names[] = {
    "sshd", "sshd-session", "sshd-auth", "login", "dbus-daemon", "dbus-broker", "dbus-broker-launch", "systemd",
    "polkitd", "greetd", "ly", "lxdm", "xdm", "slim", "nodm", "agreety", "tuigreet", "regreet", "gtkgreet",  //
    "Xorg", "X", "Xwayland", "Xvfb", "Xnest", "Xephyr", "Xdmx", "weston", "sway", "mutter", "muffin", "gala",
    "cinnamon", "cinnamon-session", "gnome-shell", "gnome-session-binary", "plasmashell", "plasma-desktop",
    "ksmserver", "ksplashqml", "krunner", "kscreenlocker_greet", "xfwm4", "xfdesktop", "xfce4-session",
    "xfce4-panel", "marco", "mate-session", "mate-panel", "metacity", "budgie-wm", "budgie-panel", "budgie-desktop",
    "lxsession", "lxqt-session", "lxqt-panel", "openbox", "fluxbox", "icewm", "i3", "bspwm", "awesome", "dwm",
    "dwl", "qtile", "herbstluftwm", "xmonad", "compiz", "picom", "compton", "enlightenment", "Hyprland", "hyprland",
    "hyprlock", "hypridle", "labwc", "niri", "river", "wayfire", "cage", "gamescope", "gamescope-wl", "phoc",
    "phosh", "cosmic-comp", "cosmic-session", "cosmic-panel", "miriway", "mir-kiosk", "lomiri", "deepin-kwin",
    "dde-desktop", "gnome-remote-desktop-daemon", "Xvnc", "Xtigervnc", "Xtightvnc", "Xrealvnc", "Xkasmvnc",
    "x11vnc", "x0vncserver", "X0tigervnc", "wayvnc", "vncserver-x11-core", "xrdp", "xrdp-sesman", "xrdp-chansrv",
    "Xorgxrdp", "nxserver.bin", "nxnode.bin", "dcvserver", "dcvagent", "dcvxdcv", "sunshine",  //
    "nv-fabricmanager", "nv-hostengine", "nvsm_core", "nvlsm", "dcgm-exporter",  //
    "dockerd", "docker-proxy", "docker-init", "crio", "conmon", "kubelet", "kube-proxy", "k3s", "k3s-server",
    "rke2", "lxcfs", "lxd", "incusd", "libvirtd", "virtqemud", "nomad", "slurmd", "slurmctld", "slurmstepd",
    "slurmdbd", "munged", "pbs_mom", "sge_execd", "condor_startd"};
constexpr std::string_view beginnings[] = {"kwin_", "sddm", "gdm", "lightdm", "systemd-", "nvidia-", "containerd",
                                           "xdg-desktop-portal"};
constexpr std::array<std::string_view, 5> sublets{"sublet", "subletd", "sublet-actor", "sublet-gpu", "sublet-keep"};
// Where packages install programs that users do not call, seen from the actor.
constexpr std::array<std::string_view, 3> places{".", "../libexec/sublet", "../lib/sublet"};

// Whether only root can write to a file or directory with these rights. In a sticky directory members of the group
// cannot replace files of root.
bool is_roots(uid_t owner, gid_t group, mode_t mode) {
  const bool group_writes = (mode & S_IWGRP) != 0 && group != 0 && (mode & S_ISVTX) == 0;
  return owner == 0 && (mode & S_IWOTH) == 0 && !group_writes;
}

bool are_directories_roots(const std::filesystem::path& file) {
  for (std::filesystem::path at = file.parent_path();; at = at.parent_path()) {
    struct stat found {};
    if (::lstat(at.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return false;
    if (!is_roots(found.st_uid, found.st_gid, found.st_mode)) return false;
    if (at == at.root_path()) return true;
  }
}

// A mount namespace of its own can show a process any file of root under any path.
bool is_file_here(const proc::Executable& executable) {
  if (executable.removed) return true;  // an update replaced it
  struct stat here {};
  return ::lstat(executable.path.c_str(), &here) == 0 && here.st_dev == executable.device &&
         here.st_ino == executable.inode;
}

}  // namespace

bool is_protected_name(std::string_view name) {
  return std::ranges::find(names, name) != std::end(names) ||
         std::ranges::any_of(beginnings, [&](auto start) { return name.starts_with(start); });
}

bool is_protected(const proc::Executable& executable, bool hosts, const std::string& directory) {
  const std::filesystem::path path = executable.path;
  if (!hosts || !path.is_absolute() || !is_file_here(executable)) return false;
  const std::string name = path.filename();
  if (std::find(sublets.begin(), sublets.end(), name) != sublets.end()) {
    const auto is_there = [&](auto place) {
      return (std::filesystem::path(directory) / place).lexically_normal() / "" == path.parent_path() / "";
    };
    return std::any_of(places.begin(), places.end(), is_there);
  }
  return is_protected_name(name) && is_roots(executable.owner, executable.group, executable.mode) &&
         are_directories_roots(path);
}

std::string own_directory() {
  std::error_code failure;
  return std::filesystem::read_symlink("/proc/self/exe", failure).parent_path().string();
}

}  // namespace sublet::actor
