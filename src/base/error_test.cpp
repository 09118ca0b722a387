// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

namespace sublet {
namespace {

TEST(Codes, HaveAWordOfTheirOwnAndAnHttpStatus) {
  std::set<std::string> words;
  int count = 0;
  for (int i = 0; i <= static_cast<int>(Code::Unavailable); ++i, ++count) {
    const Code code = static_cast<Code>(i);
    words.insert(std::string(to_string(code)));
    EXPECT_GE(http_status(code), 400);
    EXPECT_LT(http_status(code), 600);
  }
  EXPECT_EQ(static_cast<int>(words.size()), count);
  EXPECT_EQ(http_status(Code::TooLarge), 422);
  EXPECT_EQ(http_status(Code::Memory), 409);
  EXPECT_EQ(http_status(Code::InUse), 409);
  EXPECT_EQ(http_status(Code::NotFound), 404);
  EXPECT_EQ(http_status(Code::Denied), 403);
  EXPECT_EQ(http_status(Code::BadRequest), 400);
  EXPECT_EQ(http_status(Code::Unavailable), 503);
}

TEST(Errors, CarryCodeDetailAndHint) {
  const Error error = not_found("no lease-7", "'sublet ps' lists them");
  EXPECT_EQ(error.code, Code::NotFound);
  EXPECT_EQ(error.detail, "no lease-7");
  EXPECT_EQ(error.hint, "'sublet ps' lists them");
  EXPECT_EQ(denied("x").code, Code::Denied);
  EXPECT_EQ(bad_request("x").code, Code::BadRequest);
  EXPECT_EQ(unavailable("x").code, Code::Unavailable);
}

TEST(Errors, FromErrnoSaysWhatAndWhy) {
  const Error error = from_errno("open /nowhere", ENOENT);
  EXPECT_EQ(error.code, Code::Unavailable);
  EXPECT_EQ(error.detail, "open /nowhere: No such file or directory");
}

TEST(Results, HoldAValueOrAnError) {
  const Result<int> good = 7;
  const Result<int> bad = bad_request("no number");
  EXPECT_TRUE(good);
  EXPECT_EQ(*good, 7);
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.error().detail, "no number");
  const Status done;
  EXPECT_TRUE(done);
}

TEST(ResultsDeathTest, AnUncheckedErrorEndsTheProgramLoudly) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        const Result<int> bad = bad_request("no number");
        (void)bad.value();
      },
      "bug: unchecked error BadRequest: no number");
}

}  // namespace
}  // namespace sublet
