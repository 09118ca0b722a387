// SPDX-License-Identifier: Apache-2.0
#include "proc/process_files.h"

#include "proc/pidfd.h"
#include "proc/test_support.h"

#include <fcntl.h>
#include <sys/mman.h>

namespace sublet::proc {
namespace {

// A file that a child has open and mapped.
struct Used {
  std::string path() const { return dir.path("file"); }
  FilesFound search(FileSearch what, Duration patience = std::chrono::seconds(10)) const {
    const auto files = open_process_files(root, child.pid());
    return files ? search_files(files->get(), what, patience) : FilesFound{};
  }
  FileSearch both() const {
    return {.is_open = [this](std::string_view name, int, const char*) { return name == path(); },
            .is_mapped = [this](std::string_view name) { return name == path(); }};
  }

  TempDir dir;
  ProcRoot root = *ProcRoot::open();
  Fd file = [this] {
    dir.write("file", std::string(4096, 'x'));
    return Fd(::open(path().c_str(), O_RDONLY));
  }();
  void* memory = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
  Child child{sleep_for_ever};
};

TEST(ProcessFiles, AreFoundInAnotherProcess) {
  const Used used;
  ASSERT_NE(used.memory, MAP_FAILED);
  const FilesFound found = used.search(used.both());
  EXPECT_TRUE(found.open);
  EXPECT_TRUE(found.mapped);
  FileSearch none = used.both();
  none.is_open = [](std::string_view, int, const char*) { return false; };
  none.is_mapped = [](std::string_view) { return false; };
  const FilesFound nothing = used.search(none);
  EXPECT_FALSE(nothing.open);
  EXPECT_FALSE(nothing.mapped);
  ::munmap(used.memory, 4096);
}

TEST(ProcessFiles, AreReportedAsFarAsTheyWereSeenInTime) {
  const Used used;
  FileSearch blocked = used.both();
  blocked.is_mapped = [](std::string_view) { return sleep_for_ever() == 0; };
  const FilesFound found = used.search(blocked, std::chrono::milliseconds(300));
  EXPECT_TRUE(found.open);
  EXPECT_FALSE(found.mapped);
  ::munmap(used.memory, 4096);
}

TEST(ProcessFiles, OfAnEndedProcessAreNotThoseOfTheNextOne) {
  const ProcRoot root = *ProcRoot::open();
  Child child(sleep_for_ever);
  const auto files = open_process_files(root, child.pid());
  ASSERT_TRUE(files);
  ASSERT_TRUE(executable_of(files->get()));
  ::kill(child.pid(), SIGKILL);
  child.reap();
  EXPECT_EQ(executable_of(files->get()).error().code, Code::NotFound);
}

TEST(ProcessFiles, NameTheExecutable) {
  const ProcRoot root = *ProcRoot::open();
  const auto files = open_process_files(root, ::getpid());
  ASSERT_TRUE(files);
  const auto executable = executable_of(files->get());
  ASSERT_TRUE(executable);
  EXPECT_EQ(executable->path, std::filesystem::read_symlink("/proc/self/exe").string());
  EXPECT_FALSE(executable->removed);
  EXPECT_FALSE(open_process_files(root, 0x7ffffff0));
}

}  // namespace
}  // namespace sublet::proc
