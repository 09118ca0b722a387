// SPDX-License-Identifier: Apache-2.0
// Looking for stacks: in their directory, in the configuration, and where an administrator said.
#include "base/text.h"
#include "stacks/stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace sublet::stacks {
namespace {

constexpr Duration reading_at_most = std::chrono::seconds(1);  // then the last reading counts
constexpr const char* directory_label = "com.docker.compose.project.working_dir";

std::string normal(const std::string& directory) {
  std::string path = std::filesystem::path(directory).lexically_normal().string();
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

compose::Sources Stacks::sources() const {
  compose::Sources all = options_.sources;
  all.adopted.clear();
  for (const auto& [name, entry] : entries_)
    if (!entry.stack.adopted.empty()) all.adopted.push_back({name, entry.stack.adopted});
  return all;
}

void Stacks::refresh(Duration at_most, std::function<void()> done, bool reading) {
  const Time now = engine_.now();
  Asked asked{now + at_most, std::move(done)};
  if (reading && !engine_.state().devices.by_uuid.empty() && engine_.state().devices.snapshot_problem.empty()) {
    asked.read_by = now + reading_at_most;
    engine_.observer().take_snapshot();
  }
  (describing_ ? asked_next_ : asked_).push_back(std::move(asked));
  if (!describing_) describe();
  engine_.call_capabilities();
}

void Stacks::when_known(Duration at_most, std::function<void()> done) {
  if (looked_) return done();
  asked_.push_back({.until = engine_.now() + at_most, .done = std::move(done), .until_known = true});
  engine_.call_capabilities();
}

void Stacks::describe() {
  describing_ = true;
  worker_.describe(sources(),
                   [this](Result<std::vector<compose::Description>> result) { described(std::move(result)); });
}

void Stacks::described(Result<std::vector<compose::Description>> result) {
  const engine::Engine::Transaction transaction(engine_);
  describing_ = false;
  if (result) {
    worker_problem_.clear();
    looked_ = true;
    for (auto& [name, entry] : entries_) entry.found.reset();
    for (compose::Description& one : *result) {
      if (const Status good = check_name(one.name); !good && !one.error) one.error = good.error();
      Entry& entry = entries_[one.name];
      entry.stack.name = one.name;
      if (!entry.found) entry.found = std::move(one);  // a second one of this name has the same error
    }
    std::erase_if(entries_, [](const auto& each) { return !each.second.found && each.second.stack.blank(); });
    watch(false);
  } else {
    worker_problem_ = result.error().detail;
    describe_at_ = engine_.now() + std::chrono::seconds(2);
  }
  for (Asked& asked : asked_) asked.looked = true;
  const bool again = !asked_next_.empty();
  std::ranges::move(std::exchange(asked_next_, {}), std::back_inserter(asked_));
  if (again) describe();
  (void)answer_asked(engine_.now());
  look_at_all();
}

void Stacks::measured(Time) {  // due() follows
  for (std::vector<Asked>* list : {&asked_, &asked_next_})
    for (Asked& asked : *list) asked.read_by.reset();
}

// Answers the callers whose wait is over, after the present transaction. Returns when the next one's is, at the latest.
Time Stacks::answer_asked(Time now) {
  Time next = Time::never();
  std::vector<Asked> done;
  for (std::vector<Asked>* list : {&asked_, &asked_next_}) {
    const auto waits = [&](Asked& asked) {
      if (asked.read_by && now >= *asked.read_by) asked.read_by.reset();
      if (asked.until_known) return now < asked.until && !looked_;
      return now < asked.until && (asked.read_by || !asked.looked);
    };
    const auto rest = std::stable_partition(list->begin(), list->end(), waits);
    std::move(rest, list->end(), std::back_inserter(done));
    list->erase(rest, list->end());
    for (const Asked& asked : *list) next = std::min({next, asked.until, asked.read_by.value_or(Time::never())});
  }
  if (!done.empty())
    engine_.capabilities().later([done = std::move(done)] {
      for (const Asked& asked : done) asked.done();
    });
  return next;
}

void Stacks::watch(bool again) {
  std::vector<std::string> projects;
  for (const auto& [name, entry] : entries_) {
    if (!entry.stack.project.empty()) projects.push_back(entry.stack.project);
    else if (entry.found && !entry.found->project.empty()) projects.push_back(entry.found->project);
  }
  if (!again && projects == watched_) return;
  watched_ = std::move(projects);
  worker_.watch(watched_);
}

// Compose finds containers by the name of the project only. It would replace and remove those of another directory.
Status Stacks::check_containers(const Entry& entry, const std::string& directory) const {
  if (!entry.seen) return {};
  for (const compose::Container& one : entry.seen->containers) {
    const auto place = one.labels.find(directory_label);
    if (place == one.labels.end() || one.labels.contains("sublet.stack")) continue;
    if (normal(place->second) == normal(directory)) continue;
    return Error{Code::InUse,
                 fmt::format("container {} was started from {}, in the same Compose project '{}' as stack {}",
                             printable(one.name), printable(place->second), printable(entry.seen->project),
                             printable(entry.stack.name)),
                 "bring these containers down, rename the directory, or set `name:` in its Compose file (Compose 2)"};
  }
  return {};
}

void Stacks::adopt(const compose::Adopted& wanted, std::function<void(Status)> done) {
  if (const Status good = check_name(wanted.name); !good) return done(good);
  const Entry* old = find(wanted.name);
  const std::string place = normal(wanted.path);
  const bool same = old != nullptr && old->found && old->stack.adopted.empty() &&
                    (place == old->found->file || place == old->found->directory);
  if (old != nullptr && old->found && !same) {
    return done(Error{Code::InUse, fmt::format("there is a stack {} already, in {}", wanted.name, old->found->file),
                      "choose another name: sublet stack adopt --name NAME"});
  }
  compose::Sources more = sources();
  std::erase_if(more.adopted, [&](const compose::Adopted& each) { return each.name == wanted.name; });
  more.adopted.push_back(wanted);
  worker_.describe(more, [this, wanted, done = std::move(done)](Result<std::vector<compose::Description>> result) {
    if (!result) return done(result.error());
    const auto found = std::ranges::find(*result, wanted.name, &compose::Description::name);
    if (found == result->end())
      return done(not_found(fmt::format("no Compose file was found in {}", printable(wanted.path)),
                            "name a directory with a Compose file, or the file"));
    if (found->error) return done(*found->error);
    if (const auto good = rule_of(*found, options_.label); !good) return done(good.error());
    if (const auto good = parse_extension(wanted.name, found->extension); !good) return done(good.error());
    Entry& entry = entries_[wanted.name];
    entry.stack.name = wanted.name;
    entry.stack.adopted = wanted.path;
    entry.found = std::move(*found);
    changed(entry);
    watch(false);
    done({});
  });
}

}  // namespace sublet::stacks
