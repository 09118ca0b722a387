// SPDX-License-Identifier: Apache-2.0
#include "events/redis.h"

#include "base/text.h"
#include "events/connect.h"
#include "events/http_post.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <boost/asio/write.hpp>

#include <array>
#include <memory>

namespace sublet::events {
namespace {

namespace asio = boost::asio;

std::string encode(const std::vector<std::string>& command) {
  std::vector<const char*> words;
  std::vector<std::size_t> sizes;
  for (const std::string& word : command) {
    words.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* text = nullptr;
  const long long size = redisFormatCommandArgv(&text, static_cast<int>(words.size()), words.data(), sizes.data());
  if (size < 0) return {};
  std::string out(text, static_cast<std::size_t>(size));
  redisFreeCommand(text);
  return out;
}

struct FreeReader {
  void operator()(redisReader* reader) const { redisReaderFree(reader); }
};
using Reader = std::unique_ptr<redisReader, FreeReader>;

// The next reply: "" if it is good, its error otherwise. Unset: more has to be read.
std::optional<std::string> take_reply(redisReader* reader) {
  void* reply = nullptr;
  if (redisReaderGetReply(reader, &reply) != REDIS_OK)
    return fmt::format("its answer is unreadable: {}", reader->errstr);
  if (reply == nullptr) return {};
  const auto* read = static_cast<const redisReply*>(reply);
  std::string error = read->type == REDIS_REPLY_ERROR ? printable(std::string_view(read->str, read->len)) : "";
  freeReplyObject(reply);
  return error;
}

}  // namespace

asio::awaitable<std::string> Redis::send(const std::vector<Command>& commands, Duration at_most) {
  std::string text;
  for (const Command& command : commands) text += encode(command);
  stream_->expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(at_most));
  auto [error, written] = co_await asio::async_write(*stream_, asio::buffer(text), quiet);
  if (error) co_return problem_text(error, address_);
  const Reader reader(redisReaderCreate());
  std::array<char, 16384> buffer;
  for (std::size_t answered = 0; answered < commands.size();) {
    if (const auto reply = take_reply(reader.get())) {
      if (!reply->empty()) co_return fmt::format("{} refuses {}: {}", address_.shown(), commands[answered][0], *reply);
      ++answered;
      continue;
    }
    auto [failed, size] = co_await stream_->async_read_some(asio::buffer(buffer), quiet);
    if (failed) co_return problem_text(failed, address_);
    redisReaderFeed(reader.get(), buffer.data(), size);
  }
  co_return std::string();
}

asio::awaitable<std::string> Redis::open(Duration at_most) {
  auto connected = co_await connect(address_, at_most);
  if (auto* error = std::get_if<boost::system::error_code>(&connected)) co_return problem_text(*error, address_);
  stream_.emplace(std::move(std::get<boost::beast::tcp_stream>(connected)));
  std::vector<Command> commands;
  if (!address_.user.empty()) commands.push_back({"AUTH", address_.user, address_.password});
  else if (!address_.password.empty()) commands.push_back({"AUTH", address_.password});
  commands.push_back({"SELECT", std::to_string(address_.database)});
  co_return co_await send(commands, at_most);
}

asio::awaitable<std::string> Redis::publish(std::vector<std::pair<std::string, std::string>> messages,
                                            Duration at_most) {
  std::string problem;
  if (!stream_) problem = co_await open(at_most);
  if (problem.empty()) {
    std::vector<Command> commands;
    for (auto& [channel, text] : messages) commands.push_back({"PUBLISH", channel, std::move(text)});
    problem = co_await send(commands, at_most);
  }
  if (!problem.empty()) stream_.reset();
  co_return problem;
}

}  // namespace sublet::events
