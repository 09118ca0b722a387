// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "slices.h"

namespace simgpu {
namespace {

using namespace layout;

bool fail(std::string* error, const std::string& what) {
  if (error) *error = what + ": " + std::strerror(errno);
  return false;
}

std::uint64_t mix(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// The same directory and place always give the same card, so that clients recognise a card that is made anew.
std::array<std::uint8_t, 16> stable_uuid(const std::string& dir, unsigned index) {
  char real[PATH_MAX];
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : std::string(::realpath(dir.c_str(), real) ? real : dir.c_str()))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  const std::uint64_t halves[2] = {mix(hash + std::uint64_t{2} * index), mix(hash + std::uint64_t{2} * index + 1)};
  std::array<std::uint8_t, 16> uuid;
  std::memcpy(uuid.data(), halves, sizeof halves);
  uuid[6] = (uuid[6] & 0x0f) | 0x40;
  uuid[8] = (uuid[8] & 0x3f) | 0x80;
  return uuid;
}

void fill(layout::Cards& table, const std::string& dir, const Spec& spec) {
  table.magic = magic;
  table.version = version;
  table.size = sizeof(layout::Cards);
  table.devices = spec.devices.size();
  table.next_nonce = 1;
  for (const auto& info : settings()) table.settings[static_cast<unsigned>(info.setting)] = info.initial;
  for (const auto& [setting, value] : spec.settings) table.settings[static_cast<unsigned>(setting)] = value;
  for (unsigned i = 0; i < table.devices; ++i) {
    auto& device = table.device[i];
    device.mig = spec.devices[i].mig ? 1 : 0;
    device.unified = spec.devices[i].unified ? 1 : 0;
    std::snprintf(device.name.data(), device.name.size(), "%s", spec.devices[i].name.c_str());
    device.uuid = stable_uuid(dir, i);
    device.total = spec.devices[i].total;
    device.reserve = spec.devices[i].reserve;
    for (const auto& [figure, value] : spec.devices[i].figures) set_figure(device, figure, value);
    for (std::size_t link = 0; link < link_keys.size(); ++link) device.linked[link] = spec.devices[i].linked[link];
    device.pci_bus = 0x17 + 0x10 * i;  // ascending, as PCI_BUS_ID order expects; 16 cards end at 0x107, see below
    device.pci_domain = device.pci_bus >> 8;
    device.pci_bus &= 0xff;
  }
}

// Reads the start time and the number of threads of a process; false when there is no such process.
struct Stat {
  char state = 0;
  std::uint64_t start_ticks = 0;
  long threads = 0;
};
// NOLINTBEGIN(cert-err34-c): numbers as the kernel prints them.
bool read_stat(std::uint32_t pid, Stat& stat) {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  const char* at = std::strrchr(text, ')');  // the name may hold spaces and brackets
  unsigned long long start = 0;
  if (!at || std::sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
                         &stat.state, &stat.threads, &start) != 3)
    return false;
  stat.start_ticks = start;
  return true;
}
// NOLINTEND(cert-err34-c)

// One descriptor per file and process, never closed. Closing any descriptor of a file releases all record locks that
// the process has on the file, and the lock tells that the process lives.
int alive_descriptor(const std::string& path, bool make) {
  static auto* mutex = new std::mutex;
  static auto* known = new std::map<std::pair<dev_t, ino_t>, int>;
  const std::lock_guard lock(*mutex);
  struct stat there;
  if (::stat(path.c_str(), &there) == 0) {
    const auto it = known->find({there.st_dev, there.st_ino});
    if (it != known->end()) return it->second;
  } else if (!make) {
    return -1;
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0666);
  if (fd < 0 || ::fstat(fd, &there) != 0) return -1;
  if (make) ::fchmod(fd, 0666);
  known->insert_or_assign({there.st_dev, there.st_ino}, fd);
  return fd;
}

struct flock byte_lock(unsigned slot, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot;
  lock.l_len = 1;
  return lock;
}

std::uint64_t own_identity() {
  Stat stat;
  const auto pid = static_cast<std::uint32_t>(::getpid());
  return owner_identity(pid, read_stat(pid, stat) ? stat.start_ticks : 0);
}

bool write_cards(const std::string& path, const std::string& dir, const Spec& spec, bool replace) {
  const std::string temporary = path + "." + std::to_string(::getpid());
  const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  bool good = ::fchmod(fd, 0666) == 0 && ::ftruncate(fd, sizeof(layout::Cards)) == 0;
  if (good) {
    void* map = ::mmap(nullptr, sizeof(layout::Cards), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    good = map != MAP_FAILED;
    if (good) {
      auto& table = *static_cast<layout::Cards*>(map);
      fill(table, dir, spec);
      for (unsigned card = 0; card < table.devices; ++card)
        for (const Profile& profile : spec.devices[card].slices) add_slice(table, card, profile);
      ::munmap(map, sizeof(layout::Cards));
    }
  }
  ::close(fd);
  // A link fails if the name exists, a rename replaces it: in both cases no process sees half a table.
  if (good) good = (replace ? ::rename(temporary.c_str(), path.c_str()) : ::link(temporary.c_str(), path.c_str())) == 0;
  const int saved = errno;
  ::unlink(temporary.c_str());
  errno = saved;
  return good;
}

}  // namespace

std::unique_ptr<Table> Table::create(const std::string& dir, const Spec& spec, std::string* error, bool replace) {
  if (spec.devices.empty() || spec.devices.size() > max_devices) {
    if (error) *error = "1 to " + std::to_string(max_devices) + " cards";
    return nullptr;
  }
  const std::string shared = dir + "/shared", cards = dir + "/cards";
  if (::mkdir(dir.c_str(), 0755) != 0 && errno != EEXIST) return fail(error, dir), nullptr;
  if (::mkdir(shared.c_str(), 0777) != 0 && errno != EEXIST) return fail(error, shared), nullptr;
  ::chmod(shared.c_str(), 01777);
  if (replace) ::unlink((dir + "/alive").c_str());
  if (alive_descriptor(dir + "/alive", true) < 0) return fail(error, dir + "/alive"), nullptr;
  if (!write_cards(cards, dir, spec, replace)) return fail(error, cards), nullptr;
  return open(dir, error);
}

std::unique_ptr<Table> Table::open(const std::string& dir, std::string* error) {
  const std::string cards = dir + "/cards";
  const int fd = ::open(cards.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return fail(error, cards), nullptr;
  struct stat there;
  void* map = MAP_FAILED;
  const bool sized = ::fstat(fd, &there) == 0 && there.st_size == sizeof(layout::Cards);
  if (sized) map = ::mmap(nullptr, sizeof(layout::Cards), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  auto* table = static_cast<layout::Cards*>(map);
  if (sized && map == MAP_FAILED) return fail(error, cards), nullptr;
  if (!sized || table->magic != magic || table->version != version || table->size != sizeof(layout::Cards)) {
    if (sized) ::munmap(map, sizeof(layout::Cards));
    if (error) *error = cards + ": not a table of this version";
    return nullptr;
  }
  const int alive = alive_descriptor(dir + "/alive", false);
  if (alive < 0) {
    fail(error, dir + "/alive");
    ::munmap(map, sizeof(layout::Cards));
    return nullptr;
  }
  return std::unique_ptr<Table>(new Table(dir, table, alive));
}

std::unique_ptr<Table> Table::open_from_environment(std::string* error) {
  const char* dir = std::getenv(directory_variable);
  if (dir && *dir) return open(dir, error);
  if (error) *error = std::string(directory_variable) + " is not set";
  return nullptr;
}

Table::~Table() { ::munmap(static_cast<void*>(map_), sizeof(layout::Cards)); }

std::string Table::uuid_text(unsigned index) const {
  std::string text = index < max_devices ? "GPU-" : "MIG-";
  char two[4];
  for (unsigned i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::snprintf(two, sizeof two, "%02x", map_->device[index].uuid[i]);
    text += two;
  }
  return text;
}

std::string Table::pci_bus_id(unsigned index) const {
  char text[32];
  const auto& device = map_->device[index];
  std::snprintf(text, sizeof text, "%08X:%02X:%02X.0", device.pci_domain, device.pci_bus, device.pci_device);
  return text;
}

std::uint64_t Table::get(Setting setting) const { return map_->settings[static_cast<unsigned>(setting)].load(); }
void Table::set(Setting setting, std::uint64_t value) { map_->settings[static_cast<unsigned>(setting)] = value; }

std::uint64_t Table::capability(unsigned device) const {
  const std::uint64_t usual = get(Setting::compute_capability);
  return figure_of(map_->device[device], Figure::cc, usual).value_or(usual);
}

std::uint64_t Table::context_bytes(unsigned device) const {
  const std::uint64_t value = get(Setting::context_bytes);
  if (value != ~std::uint64_t{0}) return value;
  constexpr std::uint64_t granule = 2 << 20;
  return std::min<std::uint64_t>(512 << 20, map_->device[device].total / 16) / granule * granule;
}

// ------------------------------------------------------------------------------------------- living processes

bool Table::identity_alive(std::uint64_t identity) const {
  Stat stat;
  if (!read_stat(owner_pid(identity), stat) || stat.start_ticks != owner_start(identity)) return false;
  // A main thread that has ended while other threads run is a zombie too, but it is not the only thread.
  return stat.state != 'X' && (stat.state != 'Z' || stat.threads > 1);
}

bool Table::slot_alive(unsigned slot, std::uint64_t owner) const {
  // The lock is of the open file, not of the process. This process therefore also sees its own lock, which another copy
  // of this library in it may have taken.
  auto lock = byte_lock(slot, F_WRLCK);
  if (::fcntl(alive_fd_, F_OFD_GETLK, &lock) != 0) return identity_alive(owner & owner_identity_mask);
  return lock.l_type != F_UNLCK;
}

unsigned Table::sweep() {
  unsigned dead = 0;
  const unsigned slots = std::min<std::uint64_t>(map_->process_slots.load(), max_processes);
  for (unsigned i = 0; i < slots; ++i) {
    std::uint64_t owner = map_->process[i].owner.load();
    // The account is not cleared here: the next process in the slot clears it before the slot counts again.
    if (owner != 0 && !slot_alive(i, owner) && map_->process[i].owner.compare_exchange_strong(owner, 0)) ++dead;
  }
  sweep_shared();
  return dead;
}

std::string Table::shared_path(unsigned slot, std::uint64_t state) const {
  return dir_ + "/shared/" + std::to_string(slot) + "." + std::to_string(state & owner_identity_mask);
}

// A holder's open file has a lock that lasts as long as any descriptor of that open file: inherited, passed on, or
// still on its way through a socket.
bool Table::shared_alive(unsigned slot, std::uint64_t state) const {
  const int fd = ::open(shared_path(slot, state).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return errno != ENOENT;
  auto lock = byte_lock(0, F_WRLCK);
  const bool held = ::fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  ::close(fd);
  return held;
}

// A process that died while it made an object may have made the object's file. The sweeper takes the claim over while
// it looks, so that no process makes another object in that place. If the sweeper dies, the claim is a dead process's
// again.
void Table::sweep_claim(unsigned slot, std::uint64_t state) {
  const std::uint64_t mine = owner_claiming | own_identity();
  if (!map_->shared[slot].state.compare_exchange_strong(state, mine)) return;
  const std::string prefix = std::to_string(slot) + ".";
  if (DIR* dir = ::opendir((dir_ + "/shared").c_str())) {
    while (const dirent* entry = ::readdir(dir))
      if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0)
        ::unlink((dir_ + "/shared/" + entry->d_name).c_str());
    ::closedir(dir);
  }
  map_->shared[slot].state = 0;
}

void Table::sweep_shared() {
  const unsigned slots = std::min<std::uint64_t>(map_->shared_slots.load(), max_shared);
  for (unsigned i = 0; i < slots; ++i) {
    auto& shared = map_->shared[i];
    std::uint64_t state = shared.state.load();
    if (state == 0) continue;
    if ((state & ~owner_identity_mask) == owner_claiming) {
      if (!identity_alive(state & owner_identity_mask)) sweep_claim(i, state);
    } else if (!shared_alive(i, state)) {
      // The name goes first: a sweeper that is killed in between leaves a slot without a file, and such a slot is dead
      // too.
      ::unlink(shared_path(i, state).c_str());
      shared.state.compare_exchange_strong(state, 0);
    }
  }
}

Process* Table::join(std::string* error) {
  const std::lock_guard guard(join_mutex_);
  if (process_) return process_.get();
  const std::uint64_t identity = own_identity();
  for (unsigned i = 0; i < max_processes; ++i) {
    auto& slot = map_->process[i];
    // A program that this process ran before exec has left its name but not its lock: such a slot is free.
    auto lock = byte_lock(i, F_WRLCK);
    if (slot_alive(i, slot.owner.load()) || ::fcntl(alive_fd_, F_SETLK, &lock) != 0) continue;
    std::uint64_t used = map_->process_slots.load();
    while (used < i + 1 && !map_->process_slots.compare_exchange_weak(used, i + 1)) {
    }
    slot.owner = owner_claiming | identity;
    for (auto& word : slot.charge) word = 0;
    for (auto& word : slot.contexts) word = 0;
    for (auto& word : slot.busy_ns) word = 0;
    auto& control = slot.control;
    for (auto* word : {&control.thread, &control.state, &control.caller, &control.request, &control.target,
                       &control.argument, &control.devices, &control.answered, &control.result, &control.value})
      *word = 0;
    slot.group = 0;
    const char* draws = std::getenv(drawing_variable);
    slot.draws = draws != nullptr && std::string_view(draws) == "1" ? 1 : 0;
    for (auto& word : slot.spare) word = 0;
    slot.owner = owner_ready | identity;
    process_.reset(new Process(*this, i, owner_ready | identity));
    return process_.get();
  }
  if (error) *error = "all " + std::to_string(max_processes) + " places for processes are taken";
  return nullptr;
}

// ------------------------------------------------------------------------------------------- memory in use

DeviceUse Table::use(unsigned device) {
  sweep();
  DeviceUse use = use_of(device);
  for (const unsigned slice : slices_of(device)) {
    const DeviceUse part = use_of(slice);
    use.processes += part.processes;
    use.exported += part.exported;
  }
  return use;
}

DeviceUse Table::use_of(unsigned device) const {
  DeviceUse use;
  use.total = map_->device[device].total;
  use.reserve = map_->device[device].reserve;
  const unsigned slots = std::min<std::uint64_t>(map_->process_slots.load(), max_processes);
  for (unsigned i = 0; i < slots; ++i)
    if ((map_->process[i].owner.load() & ~owner_identity_mask) == owner_ready)
      use.processes += held_pages(map_->process[i].charge[device].load()) * account_page;
  const unsigned shared = std::min<std::uint64_t>(map_->shared_slots.load(), max_shared);
  for (unsigned i = 0; i < shared; ++i)
    if ((map_->shared[i].state.load() & ~owner_identity_mask) == owner_ready && map_->shared[i].device == device)
      use.exported += map_->shared[i].bytes.load();
  return use;
}

std::vector<ProcessUse> Table::processes() {
  sweep();
  std::vector<ProcessUse> all;
  const unsigned slots = std::min<std::uint64_t>(map_->process_slots.load(), max_processes);
  const unsigned shared = std::min<std::uint64_t>(map_->shared_slots.load(), max_shared);
  for (unsigned i = 0; i < slots; ++i) {
    const auto& slot = map_->process[i];
    const std::uint64_t owner = slot.owner.load();
    if ((owner & ~owner_identity_mask) != owner_ready) continue;
    ProcessUse use;
    use.pid = owner_pid(owner);
    use.start_ticks = owner_start(owner);
    use.state = static_cast<ControlState>(slot.control.state.load());
    use.draws = slot.draws.load() != 0;
    for (unsigned d = 0; d < max_places; ++d)
      use.device[d] = {held_pages(slot.charge[d].load()) * account_page, slot.contexts[d].load(),
                       slot.busy_ns[d].load()};
    for (unsigned s = 0; s < shared; ++s) {
      const auto& object = map_->shared[s];
      if ((object.state.load() & ~owner_identity_mask) == owner_ready && object.creator.load() == owner)
        use.device[object.device.load() % max_places].bytes += object.bytes.load();
    }
    // Another process may have taken the slot while it was read.
    if (slot.owner.load() == owner) all.push_back(use);
  }
  return all;
}

}  // namespace simgpu
