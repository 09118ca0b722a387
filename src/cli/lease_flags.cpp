// SPDX-License-Identifier: Apache-2.0
#include "cli/lease_flags.h"

#include "base/device_name.h"
#include "base/gpu_spec.h"
#include "base/hash.h"
#include "base/number.h"
#include "base/size_bounds.h"
#include "base/text.h"
#include "cli/fetch.h"
#include "cli/placement.h"
#include "cli/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <span>

namespace sublet::cli {
namespace {

using nlohmann::json;

// The memory of a device that one lease can get.
struct Whole {
  Bytes most;    // while no unleased process holds any of it
  Bytes usable;  // the same without the bytes that unleased processes have held for a minute
  std::string id;

  std::string text() const {
    if (usable == most) return "the whole of " + id;
    return fmt::format("the whole of {} without the {} of unleased processes", id, format_size(most - usable));
  }
};

// The use of the system varies by this much while a lease waits. The daemon has the same margin.
constexpr Bytes unified_margin = 512 * MiB;

Whole whole_of(const json& device, Bytes least) {
  const Bytes capacity{number_at(device, "capacity_bytes").value_or(0)};
  if (const json& unified = member(device, "unified"); unified.is_boolean() && unified.get<bool>()) {
    // The system always uses some of it, so the whole is what others leave now.
    const Bytes left = capacity - Bytes{number_at(device, "other_bytes").value_or(0)} - unified_margin;
    const Bytes most = left < least ? capacity : left;
    return {most, most, text_at(device, "id")};
  }
  const Bytes most = capacity;
  const Bytes usable = most - Bytes{number_at(device, "other_lasting_bytes").value_or(0)};
  // Where too little is left, the lease waits, and its waiting line names the processes.
  return {most, usable < least ? most : usable, text_at(device, "id")};
}

// The device with the least memory among the devices that have most of it; empty: no device matches. `size`: the
// memory that counts.
Whole whole_device(const LeaseFlags& flags, const json& status, Bytes Whole::*size = &Whole::usable) {
  const Bytes least = std::max(flags.min_vram.value_or(Bytes{}), least_lease);
  std::vector<Whole> whole;
  const auto may_be = [&flags](const json& device) {  // a lease of several devices has no MIG slice
    return device_matches(device, flags) && (flags.gpus < 2 || !member(device, "slice").is_number());
  };
  for (const auto& device : list_at(status, "devices"))
    if (may_be(device)) whole.push_back(whole_of(device, least));
  std::stable_sort(whole.begin(), whole.end(), [size](const auto& a, const auto& b) { return a.*size > b.*size; });
  // If there are not so many, the daemon says so, with what there is.
  return whole.empty() ? Whole() : whole[std::min(whole.size(), static_cast<std::size_t>(flags.gpus)) - 1];
}

std::string shown(const Consumer& consumer) {
  return fmt::format("'{}'", visible(consumer.path.empty() ? consumer.name : consumer.path));
}

// The remembered peak and a tenth. The tenth is given up where the device is smaller, or where unleased processes hold
// the memory. The peak is not: a program that gets less would fail.
Size size_of_peak(Bytes peak, const LeaseFlags& flags, const Consumer& consumer, const Whole& whole) {
  const std::string before = fmt::format("{} used at most {} so far", shown(consumer), format_size(peak));
  const Bytes wanted{peak.count + peak.count / 10};
  if (flags.min_vram && *flags.min_vram > wanted)
    return {*flags.min_vram, fmt::format("as much as --min-vram; {}", before)};
  if (whole.usable >= peak && whole.usable < wanted) return {whole.usable, fmt::format("{}; {}", before, whole.text())};
  if (whole.most > Bytes{} && whole.most < wanted)
    return {whole.most, fmt::format("{}; the whole of {}", before, whole.id)};
  return {wanted, before + ", and a tenth more"};
}

Error no_device(const LeaseFlags& flags, const json& status, std::string_view problem) {
  if (list_at(status, "devices").empty())
    return unavailable(fmt::format("{}, and the daemon knows no GPU yet", problem), "give a size: --vram 8GiB");
  for (const std::string& name : device_list(flags.gpu))
    if (const auto explained = explain_device_name(name)) return *explained;
  return not_found(fmt::format("there is no device '{}'", visible(flags.gpu)), "sublet gpus lists the devices");
}

Result<Size> all_of_a_device(const LeaseFlags& flags, const json& status) {
  const Whole whole = whole_device(flags, status, &Whole::most);
  if (whole.most == Bytes{}) return no_device(flags, status, "--vram is all");
  if (flags.memory && *flags.memory < whole.most)
    return bad_request(fmt::format("--memory is {}, less than the {} of --vram all", format_size(*flags.memory),
                                   format_size(whole.most)),
                       "the ceiling must be at least the size of the lease");
  return Size{whole.most, "the whole of " + whole.id};
}

std::optional<Bytes> remembered_peak(const std::string& consumer, client::Client& client) {
  const auto reply = client.get("/v1/consumers");
  if (!reply) return std::nullopt;
  const auto body = client::parse(*reply);
  if (!body) return std::nullopt;
  for (const auto& row : list_at(*body, "consumers")) {
    const auto peak = number_at(row, "peak_used_bytes").value_or(0);
    if (flag_at(row, "own") && text_at(row, "consumer") == consumer && peak > 0) return Bytes{peak};
  }
  return std::nullopt;
}

// The name of a program as a consumer's name. The name is a key, so two names never become one: what cannot be a
// label gets a hash of all its bytes.
std::string label_of(std::string_view text) {
  if (text.empty()) return "program";
  if (is_label(text)) return std::string(text);
  std::string start;
  for (const char c : text.substr(0, 32)) start += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return fmt::format("{}~{:016x}", start, fnv1a(text));
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_interpreter(std::string_view program) {
  if (program.starts_with("python")) return true;                                  // python3.11
  if (program.starts_with("pypy") || program.starts_with("ipython")) return true;  // pypy3, ipython3
  constexpr std::string_view all[] = {"bash", "sh",  "dash",  "zsh",     "perl", "ruby",
                                      "node", "bun", "julia", "Rscript", "php",  "lua"};
  return std::find(std::begin(all), std::end(all), program) != std::end(all);
}

// Such programs run any program, so their past use predicts nothing.
bool runs_anything(std::string_view consumer) {
  constexpr std::string_view launchers[] = {
      "accelerate", "apptainer", "conda",      "deepspeed", "docker",  "env",      "hold",        "horovodrun",
      "java",       "mamba",     "micromamba", "mpiexec",   "mpirun",  "ncu",      "nice",        "nohup",
      "nsys",       "numactl",   "podman",     "poetry",    "program", "setsid",   "singularity", "srun",
      "stdbuf",     "sudo",      "taskset",    "time",      "timeout", "torchrun", "uv",          "xargs"};
  return is_interpreter(consumer) ||
         std::find(std::begin(launchers), std::end(launchers), consumer) != std::end(launchers);
}

// The word of a command line that names what runs.
struct Word {
  std::string text;
  enum class Kind { program, script, module } kind = Kind::program;
};

Word main_word(const std::vector<std::string>& command) {
  std::span<const std::string> words = command;
  // `env A=1 B=2 train`: what it runs.
  if (!words.empty() && base_name(words.front()) == "env") {
    std::size_t named = 1;
    while (named < words.size() && words[named].find('=') != std::string::npos) ++named;
    if (named < words.size() && !words[named].starts_with('-')) words = words.subspan(named);
  }
  if (words.empty()) return {"program"};
  const std::string program = base_name(words.front());
  if (is_interpreter(program) && words.size() > 1 && !words[1].empty()) {
    // A script or a module says more than what runs it. Behind another flag (-c) there may be anything.
    if (words[1][0] != '-') return {words[1], Word::Kind::script};
    if (program.starts_with("python") && words[1] == "-m" && words.size() > 2) return {words[2], Word::Kind::module};
  }
  return {words.front()};
}

// Links stay: behind `current/train.py` there is another directory after each deployment.
std::string full_path(const std::string& path) {
  std::error_code failure;
  const auto full = std::filesystem::absolute(path, failure);
  return failure ? path : full.lexically_normal().string();
}

// The file that a search in PATH finds; "" if there is none.
std::string find_in_path(const std::string& name) {
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable == nullptr ? "" : variable;
  for (bool more = !rest.empty(); more;) {
    const auto colon = rest.find(':');
    const std::string found = full_path(fmt::format("{}/{}", rest.substr(0, colon), name));
    std::error_code failure;
    if (std::filesystem::is_regular_file(found, failure)) return found;
    more = colon != std::string_view::npos;
    if (more) rest.remove_prefix(colon + 1);
  }
  return {};
}

// The name of such a program is the same for everybody on this machine.
bool is_of_the_system(std::string_view path) {
  return path.starts_with("/usr/") || path.starts_with("/bin/") || path.starts_with("/sbin/");
}

// The file that the word stands for, if its name alone does not tell; "" otherwise. A module in the current directory
// is such a file, and an installed one is not.
std::string file_of(const Word& word) {
  std::error_code failure;
  const auto exists = [&failure](const std::string& path) { return std::filesystem::exists(path, failure); };
  if (word.kind == Word::Kind::script) return full_path(word.text);
  if (word.kind == Word::Kind::module) {
    std::string inside = word.text;
    std::ranges::replace(inside, '.', '/');
    for (const std::string& path : {inside + ".py", inside + "/__main__.py"})
      if (exists(path)) return full_path(path);
    return {};
  }
  const std::string name = base_name(word.text);
  if (name.empty() || runs_anything(name)) return {};
  // In PATH there may be the program of a virtual environment.
  const bool is_path = word.text.find('/') != std::string::npos;
  std::string path = is_path ? full_path(word.text) : find_in_path(word.text);
  return is_of_the_system(path) ? std::string() : path;
}

}  // namespace

bool device_matches(const json& device, const std::string& wanted) {
  if (wanted.empty() || wanted == "any") return true;
  return std::ranges::any_of(device_list(wanted), [&device](const std::string& name) {
    return text_at(device, "id") == name || (!name.empty() && text_at(device, "uuid").starts_with(name)) ||
           device_number(device) == name;
  });
}

bool device_matches(const json& device, const LeaseFlags& flags) {
  if (!device_matches(device, flags.gpu)) return false;
  if (flags.gpu_spec.empty()) return true;
  const json& condition = member(device, "condition");
  DescribedGpu gpu{text_at(device, "name"), Bytes{number_at(device, "total_bytes").value_or(0)}, {}, {}};
  if (const auto capability = parse_capability(text_at(condition, "compute_capability"))) gpu.capability = *capability;
  if (const auto nvlinks = number_at(condition, "nvlinks")) gpu.has_nvlink = *nvlinks > 0;
  const auto spec = GpuSpec::parse(flags.gpu_spec);
  return spec && spec->matches(gpu);
}

void add_request_flags(Command command, LeaseFlags& flags) {
  command.size_or_word("-m,--vram", flags.vram, "all", flags.all,
                       "VRAM to lease, or all: an empty device without its headroom. Default: the most that earlier "
                       "runs of the program used, plus a tenth; else a whole device without its unleased memory");
  command.size("--min-vram", flags.min_vram, "Accept less than --vram, but at least this much, to start sooner");
  command
      .option("--gpu", flags.gpu,
              "Device: gpu0, a uuid, or any; or several, joined by commas, of which the lease gets --gpus")
      .type("ID")
      .offers({Offer::Of::devices, {"any"}});
  const auto take_spec = [&flags](const std::string& text) -> Status {
    if (const auto spec = GpuSpec::parse(text); !spec) return spec.error();
    flags.gpu_spec = text;
    return {};
  };
  command.taken("--gpu-spec", take_spec, "Only devices like this: name=A100*,memory>=40GB,cc>=8.0,link=nvlink")
      .type("SPEC");
  command.option("--gpus", flags.gpus, "Number of devices, each with --vram: all at once or none")
      .type("K")
      .between(1, 1024);
  command.option("--tier", flags.tier, "Tier: critical, interactive, standard, batch or spot")
      .type("NAME")
      .one_of({"interactive", "standard", "batch", "spot", "critical"});
  command
      .option("--priority", flags.priority,
              "Priority inside the tier, higher first: -100 to 100, for admins -1000 to 1000")
      .type("N")
      .between(-1000, 1000);
  command
      .option("--tenant", flags.tenant,
              "Tenant that the lease is charged to (default: by the configuration, else your user)")
      .type("NAME")
      .not_empty("the name is empty");
  command.option("--name", flags.name, "Consumer name, under which sizes and times are remembered")
      .type("CONSUMER")
      .not_empty("the name is empty")
      .offers(Offer::Of::consumers);
  command.option("--tag", flags.tag, "Name of this lease, unique among yours")
      .type("TAG")
      .not_empty("the tag is empty");
  command
      .option("--pausable", flags.pausable,
              "How the program may be paused: auto, cooperative, driver or no (auto). With auto, a cooperative program "
              "yields by itself, and the driver parks other programs. Before driver 580 (CUDA 13.0), a failed "
              "attempt destroys a program that the driver cannot park. With driver you confirm that the program uses "
              "no managed memory, CUDA IPC, NCCL or peer access")
      .type("HOW")
      .one_of({"auto", "cooperative", "driver", "no"});
  command.idle_time("--idle-warn", flags.idle_warn, "Warn after this time without work, or off");
  command.idle_time("--idle-pause", flags.idle_pause,
                    "Let the lease be paused after this time without work, or off. By default only for a lease that "
                    "waits (idle.when)");
  command.idle_time("--idle-end", flags.idle_end, "End the lease after this time without work, or off");
}

void add_lease_flags(Command command, LeaseFlags& flags) {
  add_request_flags(command, flags);
  command.ttl("--ttl", flags.ttl, "End the lease after this time, unless it is renewed");
  const Option wait = command.duration("--wait", flags.wait, "Give up after this time in the queue (exit 124)");
  command.flag("--no-wait", flags.no_wait, "Do not queue: exit 75 if the lease would have to wait").excludes(wait);
  command.flag("--dry-run", flags.dry_run, "Only print what would happen, and which leases would be paused");
}

void add_interposer_flags(Command command, LeaseFlags& flags) {
  command.flag("--interposer", flags.interposer,
               "Preload libsublet-cuda.so, which refuses allocations beyond the lease's size");
  const auto take = [&flags](const std::string& text) -> Status {
    const auto percent = parse_share(text);
    if (!percent) return percent.error();
    flags.share = *percent;
    return {};
  };
  command
      .taken("--share", take,
             "With --interposer, the most computing time of each device that the program takes, in percent (1 to 100)")
      .type("PERCENT");
}

Result<int> parse_share(std::string_view text) {
  const auto hint = "give percent of the computing time of each device, 1 to 100: --share 30";
  const auto percent = parse_number<int>(text.ends_with('%') ? text.substr(0, text.size() - 1) : text);
  if (!percent) return bad_request(fmt::format("'{}' is no number of percent", printable(text)), hint);
  if (*percent >= 1 && *percent <= 100) return *percent;
  return bad_request(fmt::format("'{}' is not between 1 and 100", printable(text)), hint);
}

std::optional<int> check_share(const LeaseFlags& flags) {
  if (!flags.share || flags.interposer) return std::nullopt;
  return usage_error("--share needs --interposer: the library in the program keeps the program to its share",
                     "add --interposer");
}

Bytes whole_size(const LeaseFlags& flags, const json& status) { return whole_device(flags, status, &Whole::most).most; }

Result<Size> choose_size(const LeaseFlags& flags, const Consumer& consumer, const json& status,
                         client::Client& client) {
  if (flags.vram) return Size{*flags.vram, {}};
  if (flags.all) return all_of_a_device(flags, status);
  if (flags.memory) return Size{*flags.memory, "as much as --memory"};
  const Whole whole = whole_device(flags, status);
  const bool any_program = flags.name.empty() && runs_anything(consumer.name);
  const auto peak = any_program ? std::nullopt : remembered_peak(consumer.name, client);
  if (peak) return size_of_peak(*peak, flags, consumer, whole);
  if (whole.most.count > 0 && any_program) {
    return Size{whole.usable,
                fmt::format("the name '{}' does not identify a program: {} (with --name the size is remembered)",
                            visible(consumer.name), whole.text())};
  }
  if (whole.most.count > 0)
    return Size{whole.usable, fmt::format("{} has not run before: {}", shown(consumer), whole.text())};
  return no_device(flags, status, "no size was given");
}

json lease_body(const LeaseFlags& flags, const std::string& consumer, Bytes vram) {
  json body{{"vram_bytes", vram.count}, {"consumer", consumer}};
  const auto put = [&](const char* name, const std::string& value) {
    if (!value.empty()) body[name] = value;
  };
  put("tier", flags.tier);
  put("tenant", flags.tenant);
  put("tag", flags.tag);
  put("pausable", flags.pausable);
  if (flags.name.empty() && runs_anything(consumer)) body["remember"] = false;
  if (flags.gpu != "any") put("device", flags.gpu);
  put("gpu_spec", flags.gpu_spec);
  if (flags.gpus > 1) body["devices"] = flags.gpus;
  if (flags.min_vram) body["min_vram_bytes"] = flags.min_vram->count;
  if (flags.priority) body["priority"] = *flags.priority;
  if (flags.memory) body["memory_bytes"] = flags.memory->count;
  if (flags.soft) body["soft_bytes"] = flags.soft->count;
  if (flags.interposer) body["interposer"] = true;
  if (flags.share) body["share"] = *flags.share;
  if (flags.ttl) body["ttl_seconds"] = *flags.ttl / std::chrono::seconds(1);
  const auto put_idle = [&body](const char* part, const std::optional<Duration>& time) {
    if (time) body["idle"][part] = *time / std::chrono::seconds(1);
  };
  put_idle("warn_seconds", flags.idle_warn);
  put_idle("pause_seconds", flags.idle_pause);
  put_idle("end_seconds", flags.idle_end);
  return body;
}

int dry_run(const Common& common, client::Client& client, json body, const Look& look) {
  body["dry_run"] = true;
  const auto reply = client.post("/v1/leases", body);
  if (!reply) return fail(common, reply.error());
  const auto answer = client::parse(*reply);
  if (!answer) return fail(common, answer.error());
  if (common.json) {
    fmt::print("{}\n", reply->text);
  } else {
    const auto text = render_dry_run(*answer, common, look);
    if (!text) return fail(text.error());
    fmt::print("{}", *text);
  }
  return text_at(*answer, "would") == "wait" ? kWouldWait : kOk;
}

std::string program_name(const std::vector<std::string>& command) {
  return label_of(base_name(main_word(command).text));
}

Consumer consumer_of(const std::vector<std::string>& command) {
  const Word word = main_word(command);
  const std::string path = file_of(word);
  if (path.empty()) return {label_of(base_name(word.text))};
  // The path is a part of the key; the name comes first, for people.
  std::string start = label_of(base_name(word.text)).substr(0, 32);
  while (!is_label(start)) start.pop_back();
  return {fmt::format("{}~{:08x}", start, static_cast<std::uint32_t>(fnv1a(path))), path};
}

}  // namespace sublet::cli
