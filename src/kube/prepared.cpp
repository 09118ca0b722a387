// SPDX-License-Identifier: Apache-2.0
#include "kube/prepared.h"

#include "kube/cdi.h"
#include "kube/state_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace sublet::kube {
namespace {

using nlohmann::json;

constexpr std::size_t longest_uid = 64;

std::string record_of(const std::string& state_dir, const std::string& uid) {
  return directory_of_claim(state_dir, uid) + ".json";
}

}  // namespace

bool is_plain_uid(const std::string& uid) {
  return !uid.empty() && uid.size() <= longest_uid &&
         std::ranges::all_of(uid, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
}

Status remember(const std::string& state_dir, const Prepared& prepared) {
  const json record{{"namespace", prepared.claim.space},
                    {"name", prepared.claim.name},
                    {"uid", prepared.claim.uid},
                    {"pod", prepared.pod_group_uid}};
  if (auto made = make_directory(directory_of_claim(state_dir, prepared.claim.uid)); !made) return made;
  return write_file(record_of(state_dir, prepared.claim.uid), record.dump());
}

std::optional<Prepared> recall(const std::string& state_dir, const std::string& claim_uid) {
  if (!is_plain_uid(claim_uid)) return std::nullopt;
  const json record = read_json_file(record_of(state_dir, claim_uid));
  if (!record.is_object()) return std::nullopt;
  return Prepared{{text_at(record, {"namespace"}), text_at(record, {"name"}), claim_uid}, text_at(record, {"pod"})};
}

std::vector<Prepared> all_prepared(const std::string& state_dir) {
  std::vector<Prepared> all;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(state_dir + "/claims", problem))
    if (entry.path().extension() == ".json")
      if (auto prepared = recall(state_dir, entry.path().stem())) all.push_back(std::move(*prepared));
  return all;
}

void forget(const std::string& state_dir, const std::string& cdi_dir, const std::string& claim_uid) {
  if (!is_plain_uid(claim_uid)) return;
  std::error_code problem;
  ::unlink(cdi_file(cdi_dir, claim_uid).c_str());
  std::filesystem::remove_all(directory_of_claim(state_dir, claim_uid), problem);
  ::unlink(record_of(state_dir, claim_uid).c_str());
}

}  // namespace sublet::kube
