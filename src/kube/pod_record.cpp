// SPDX-License-Identifier: Apache-2.0
#include "kube/pod_record.h"

#include "kube/prepared.h"
#include "kube/state_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>

namespace sublet::kube {
namespace {

using nlohmann::json;

std::string path_of(const std::string& state_dir, const std::string& group_uid) {
  return fmt::format("{}/pods/{}.json", state_dir, group_uid);
}

std::mutex changing;  // doors write records, and the tellers write states and remove records

Status write_record(const std::string& state_dir, const PodRecord& record) {
  const json content{{"namespace", record.name.space},
                     {"name", record.name.name},
                     {"uid", record.uid},
                     {"group", record.group_uid},
                     {"directories", record.directories}};
  return write_file(path_of(state_dir, record.group_uid), content.dump());
}

std::optional<PodRecord> read_record(const std::string& path) {
  const json content = read_json_file(path);
  PodRecord record{{text_at(content, {"namespace"}), text_at(content, {"name"})},
                   text_at(content, {"uid"}),
                   text_at(content, {"group"}),
                   {}};
  if (!is_plain_uid(record.group_uid)) return std::nullopt;
  for (const json& directory : list_at(content, {"directories"}))
    if (directory.is_string()) record.directories.push_back(directory.get<std::string>());
  return record;
}

}  // namespace

Status keep_record(const std::string& state_dir, const Pod& pod, const std::string& directory) {
  if (!is_plain_uid(pod.group_uid)) return bad_request("the pod has no uid");
  const std::scoped_lock lock(changing);
  if (auto made = make_directory(state_dir + "/pods"); !made) return made;
  PodRecord record{pod.name, pod.uid, pod.group_uid, {}};
  if (const auto before = read_record(path_of(state_dir, pod.group_uid))) record.directories = before->directories;
  if (std::ranges::count(record.directories, directory) > 0) return {};
  // The units of a pod that has ended are those of the next pod, and so is their directory.
  for (PodRecord& other : all_records(state_dir))
    if (std::erase(other.directories, directory) > 0)
      if (auto written = write_record(state_dir, other); !written) return written;
  record.directories.push_back(directory);
  return write_record(state_dir, record);
}

std::vector<PodRecord> all_records(const std::string& state_dir) {
  std::vector<PodRecord> all;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(state_dir + "/pods", problem))
    if (entry.path().extension() == ".json")
      if (auto record = read_record(entry.path())) all.push_back(std::move(*record));
  return all;
}

Status write_states(const std::string& state_dir, const std::string& group_uid, const Held& lease) {
  const std::scoped_lock lock(changing);
  const auto now = read_record(path_of(state_dir, group_uid));
  Status result;
  for (const std::string& directory : now ? now->directories : std::vector<std::string>())
    if (auto written = write_state(directory, lease); !written) result = written;
  return result;
}

void drop_record(const std::string& state_dir, const PodRecord& record) {
  const std::scoped_lock lock(changing);
  const auto now = read_record(path_of(state_dir, record.group_uid));
  std::error_code problem;
  for (const std::string& directory : now ? now->directories : std::vector<std::string>())
    if (directory.starts_with(state_dir + "/")) std::filesystem::remove_all(directory, problem);
  ::unlink(path_of(state_dir, record.group_uid).c_str());
}

}  // namespace sublet::kube
