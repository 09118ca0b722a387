// SPDX-License-Identifier: Apache-2.0
#include "shim/real_program.h"

#include "shim/place.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace sublet::shim {
namespace {

namespace fs = std::filesystem;

// A tree of programs: shims/tool is the shim.
class RealProgram : public testing::Test {
 protected:
  RealProgram() : root_(testing::TempDir() + "real-program") {
    fs::remove_all(root_);
    for (const char* directory : {"shims", "a", "b", "gone"}) fs::create_directories(root_ + "/" + directory);
    fs::remove(root_ + "/gone");
    write("sublet-shim", 0755);
    fs::create_symlink("../sublet-shim", root_ + "/shims/tool");
  }
  ~RealProgram() override { fs::remove_all(root_); }

  void write(const std::string& name, mode_t mode) {
    std::ofstream(root_ + "/" + name) << "#!/bin/sh\n";
    ::chmod((root_ + "/" + name).c_str(), mode);
  }
  // The real program relative to the tree; of an error its code. `path` has '@' for the tree.
  std::string found(std::string path, const std::string& real = {}) const {
    for (std::size_t at = 0; (at = path.find('@', at)) != std::string::npos;) path.replace(at, 1, root_);
    Settings settings;
    if (!real.empty()) settings.real = root_ + "/" + real;
    const auto program = find_real_program(root_ + "/shims/tool", settings, path);
    if (!program) return std::string(to_string(program.error().code));
    return program->starts_with(root_ + "/") ? program->substr(root_.size() + 1) : *program;
  }

  const std::string root_;
};

TEST_F(RealProgram, IsTheNextInPathThatIsNoShim) {
  write("a/tool", 0755);
  write("b/tool", 0755);
  fs::create_directory_symlink("shims", root_ + "/link");
  for (const char* path : {"@/shims:@/a:@/b", "@/a:@/b", "@/gone:@/shims/:@/a", "@/link:@/shims/../shims:@/a:@/link",
                           "@/shims::@/a", "@/a"})
    EXPECT_EQ(found(path), "a/tool") << path;
  EXPECT_EQ(found("@/b:@/shims:@/a"), "b/tool");
}

TEST_F(RealProgram, IsNoShimInAnotherDirectory) {
  write("b/tool", 0755);
  fs::create_symlink("../shims/tool", root_ + "/a/tool");
  EXPECT_EQ(found("@/shims:@/a:@/b"), "b/tool");
  fs::remove(root_ + "/a/tool");
  fs::create_symlink("/no/such/bin/sublet-shim", root_ + "/a/tool");  // of an installation that is gone
  EXPECT_EQ(found("@/shims:@/a:@/b"), "b/tool");
}

TEST_F(RealProgram, MustBeExecutable) {
  write("a/tool", 0644);
  EXPECT_EQ(found("@/shims:@/a"), "Denied");
  write("b/tool", 0755);
  EXPECT_EQ(found("@/shims:@/a:@/b"), "b/tool");
  fs::remove(root_ + "/a/tool");
  fs::create_directory(root_ + "/a/tool");
  EXPECT_EQ(found("@/shims:@/a"), "Denied");
  EXPECT_EQ(found("@/shims:@/a:@/b"), "b/tool");
}

TEST_F(RealProgram, MayBeMissing) {
  for (const char* path : {"@/shims", "", ":", "@/shims:@/a:@/gone"}) EXPECT_EQ(found(path), "NotFound") << path;
}

TEST_F(RealProgram, IsTheNamedOne) {
  write("a/tool", 0755);
  write("b/other", 0755);
  EXPECT_EQ(found("@/shims:@/a", "b/other"), "b/other");
  EXPECT_EQ(found("@/shims:@/a", "b/none"), "NotFound");
  EXPECT_EQ(found("@/shims:@/a", "b/other/none"), "NotFound");
  EXPECT_EQ(found("@/shims:@/a", "shims/tool"), "Denied");
  EXPECT_EQ(found("@/shims:@/a", "sublet-shim"), "Denied");
  EXPECT_EQ(found("@/shims:@/a", "a"), "Denied") << "a directory";
  write("b/other", 0644);
  EXPECT_EQ(found("@/shims:@/a", "b/other"), "Denied");
}

TEST_F(RealProgram, TheShimIsFoundByTheWayThatItWasCalled) {
  fs::create_symlink("../shims/tool", root_ + "/a/short");
  EXPECT_EQ(called_shim(root_ + "/shims/tool"), root_ + "/shims/tool");  // its settings are missing
  std::ofstream(root_ + "/shims/.tool.shim") << "";
  EXPECT_EQ(called_shim(root_ + "/shims/tool"), root_ + "/shims/tool");
  EXPECT_EQ(called_shim(root_ + "/a/short"), root_ + "/a/../shims/tool");
  EXPECT_EQ(called_shim(root_ + "/sublet-shim"), std::nullopt);
  EXPECT_EQ(called_shim(""), std::nullopt);
  fs::create_symlink("loop", root_ + "/a/loop");
  EXPECT_EQ(called_shim(root_ + "/a/loop"), std::nullopt);
}

TEST_F(RealProgram, TheFirstInPathMayBeAShim) {
  write("a/tool", 0755);
  EXPECT_EQ(first_in_path("tool", root_ + "/shims:" + root_ + "/a"), root_ + "/shims/tool");
  EXPECT_EQ(first_in_path("tool", root_ + "/a:" + root_ + "/shims"), root_ + "/a/tool");
  EXPECT_EQ(first_in_path("tool", root_ + "/gone"), "");
}

}  // namespace
}  // namespace sublet::shim
