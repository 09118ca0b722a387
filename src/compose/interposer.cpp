// SPDX-License-Identifier: Apache-2.0
#include "compose/interposer.h"

#include "base/fd.h"
#include "base/in_container.h"
#include "base/text.h"
#include "compose/private_file.h"
#include "compose/yaml.h"

#include <fmt/format.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>

namespace sublet::compose {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The path in the container of an entry of `volumes`, `tmpfs`, `configs` or `secrets`; "": it has none.
std::string target_of(const json& entry) {
  if (entry.is_object()) {
    const auto target = entry.find("target");
    return target == entry.end() ? std::string() : scalar_text(*target);
  }
  const std::string text = scalar_text(entry);  // TARGET[:OPTIONS] or SOURCE:TARGET[:OPTIONS]
  const auto colon = text.find(':');
  if (colon == text.npos || colon + 1 == text.size() || text[colon + 1] != '/') return text.substr(0, colon);
  return text.substr(colon + 1, text.find(':', colon + 1) - colon - 1);
}

// A mount on the path itself, or on a directory above it that is not a temporary one.
bool covers(const std::string& target, std::string_view path, bool is_tmpfs) {
  std::string place = fs::path(target).lexically_normal().string();
  if (place.size() > 1 && place.ends_with('/')) place.pop_back();
  return place == path || (!is_tmpfs && !place.empty() && path.starts_with(place + '/'));
}

// A colon or a dollar sign means something in a Compose file.
Status check_path(const std::string& path) {
  if (path.starts_with('/') && path.find_first_of(":$\n") == path.npos) return {};
  return bad_request(
      fmt::format("'{}' cannot be mounted: a colon or a dollar sign has a meaning in Compose files", printable(path)),
      "use a path without them");
}

Error no_credit_folder(const std::string& folder, std::string_view why) {
  return denied(fmt::format("{} is not the folder of the daemon's socket: {}", printable(folder), why),
                "the daemon makes it beside its socket: restart subletd");
}

Status check_listener(const std::string& path, const Peer& daemon) {
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  if (path.size() >= sizeof place.sun_path) return bad_request(fmt::format("the path {} is too long", printable(path)));
  std::ranges::copy(path, static_cast<char*>(place.sun_path));
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return from_errno("socket", errno);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0)
    return unavailable(
        fmt::format("no daemon answers at {}: {}", printable(path), from_errno("connect", errno).detail));
  const Peer listener = peer_of(socket.get());
  if (listener.pid == daemon.pid && listener.uid == daemon.uid) return {};
  return no_credit_folder(path, fmt::format("process {} of uid {} listens there", listener.pid, listener.uid));
}

}  // namespace

std::vector<std::string> services_with_gpu(const std::vector<Service>& services) {
  const auto asks = [](const Service& each) { return each.gpu != GpuRequest::none; };
  const bool any = std::ranges::any_of(services, asks);
  std::vector<std::string> names;
  for (const Service& each : services)
    if (!any || asks(each)) names.push_back(each.name);
  return names;
}

Status check_places(const std::string& name, const json& service) {
  for (const char* kind : {"volumes", "tmpfs", "configs", "secrets"}) {
    const auto found = service.is_object() ? service.find(kind) : service.end();
    if (!service.is_object() || found == service.end() || found->is_null()) continue;
    const json entries = found->is_array() ? *found : json::array({*found});
    for (const json& entry : entries) {
      const std::string target = target_of(entry);
      const bool is_tmpfs = kind == std::string_view("tmpfs") ||
                            (entry.is_object() && entry.contains("type") && scalar_text(entry["type"]) == "tmpfs");
      for (const std::string_view path :
           {in_container::preload_list, in_container::library, in_container::credit_folder})
        if (covers(target, path, is_tmpfs))
          return bad_request(fmt::format("service {} mounts {} itself, where the interposer needs {}", printable(name),
                                         printable(target), path),
                             "remove this mount, or leave interposer out of x-sublet");
    }
  }
  return {};
}

Peer peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return {.pid = peer.pid, .uid = peer.uid, .gid = peer.gid};
}

Result<std::string> check_credit_folder(const std::string& folder, const Peer& daemon) {
  if (daemon.pid <= 0) return no_credit_folder(folder, "the daemon's process is not known");
  if (const Status safe = check_trusted(folder, {.user = daemon.uid, .group = daemon.gid}); !safe) return safe.error();
  std::error_code failure;
  std::string path = fs::canonical(folder, failure).string();
  if (failure) return from_errno("cannot use " + printable(folder), failure.value());
  if (const Status fine = check_path(path); !fine) return fine.error();
  struct stat entry {};
  if (::lstat(path.c_str(), &entry) != 0) return from_errno("cannot use " + path, errno);
  if (!S_ISDIR(entry.st_mode)) return no_credit_folder(path, "it is no directory");
  for (fs::directory_iterator each(path, failure), end; !failure && each != end; each.increment(failure))
    if (const std::string name = each->path().filename().string();
        name != in_container::socket_name && name != in_container::fresh_name)
      return no_credit_folder(path, fmt::format("it has the entry {}", printable(name)));
  if (failure) return from_errno("cannot read " + path, failure.value());
  if (const Status ours = check_listener(fmt::format("{}/{}", path, in_container::socket_name), daemon); !ours)
    return ours.error();
  return path;
}

Result<Interposed> interpose(const Start& start, const std::string& library, const std::string& runtime,
                             const Trust& trust, const Peer& daemon) {
  const std::string list = runtime + "/ld.so.preload";
  for (const std::string& path : {library, list})
    if (const Status fine = check_path(path); !fine) return fine.error();
  if (const Status safe = check_trusted(library, trust); !safe)
    return Error{safe.error().code, "containers cannot get the interposer: " + safe.error().detail,
                 safe.error().code == Code::NotFound ? "install Sublet again" : safe.error().hint};
  auto folder = check_credit_folder(start.credit, daemon);
  if (!folder) return folder.error();
  if (const Status wrote = replace_file(list, fmt::format("{}\n", in_container::library), 0644); !wrote)
    return wrote.error();
  // Each user of a container reads it.
  if (::chmod(list.c_str(), 0644) != 0) return from_errno("cannot change " + list, errno);
  return Interposed{.services = start.interposed,
                    .mounts = {{library, in_container::library},
                               {list, in_container::preload_list},
                               {*folder, in_container::credit_folder}}};
}

std::string library_beside() {
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure);
  return (self.parent_path().parent_path() / "lib/sublet/libsublet-cuda.so").string();
}

}  // namespace sublet::compose
