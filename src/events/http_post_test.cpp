// SPDX-License-Identifier: Apache-2.0
#include "events/http_post.h"

#include <gtest/gtest.h>
#include <boost/asio/error.hpp>
#include <boost/beast/core/error.hpp>

namespace sublet::events {
namespace {

TEST(HttpPost, AProblemThatTheUnitMayCauseNamesTheRemedy) {
  Address there, here;
  there.host = "hooks.example";
  here.host = "127.0.0.1";
  there.port = here.port = 443;
  const std::string remedy = "the packaged unit lets subletd reach this machine only";
  for (const boost::system::error_code& error : {boost::system::error_code(boost::beast::error::timeout),
                                                 {boost::asio::error::host_not_found_try_again},
                                                 {boost::asio::error::no_permission}}) {
    EXPECT_NE(problem_text(error, there).find("hooks.example:443"), std::string::npos);
    if (error != boost::asio::error::no_permission) {
      EXPECT_NE(problem_text(error, there).find(remedy), std::string::npos) << error.message();
    }
    EXPECT_EQ(problem_text(error, here).find(remedy), std::string::npos) << error.message();
  }
  EXPECT_EQ(problem_text(boost::asio::error::connection_refused, there).find(remedy), std::string::npos);
}

TEST(HttpPost, StatusesAreTakenRepeatedOrFinal) {
  for (const auto& [status, taken, passing] : {std::tuple(200, true, false),
                                               {204, true, false},
                                               {302, false, false},
                                               {404, false, false},
                                               {408, false, true},
                                               {429, false, true},
                                               {500, false, true},
                                               {0, false, true}}) {
    Posted posted;
    posted.status = status;
    EXPECT_EQ(posted.taken(), taken) << status;
    EXPECT_EQ(posted.passing(), passing) << status;
  }
}

}  // namespace
}  // namespace sublet::events
