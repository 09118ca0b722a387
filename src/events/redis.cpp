// SPDX-License-Identifier: Apache-2.0
#include "events/redis.h"

#include "base/text.h"
#include "events/http_post.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <boost/asio/write.hpp>

#include <array>
#include <memory>

namespace sublet::events {
namespace {

namespace asio = boost::asio;
using net::quiet;

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

asio::awaitable<Published> Redis::send(const std::vector<Command>& commands, Duration at_most) {
  std::string text;
  for (const Command& command : commands) text += encode(command);
  Published done;
  const auto fail = [&](const boost::system::error_code& error) {
    done.problem = problem_text(error, address_);
    done.broken = true;
    return done;
  };
  net::set_limit(*stream_, at_most);
  auto [error, written] = co_await asio::async_write(*stream_, asio::buffer(text), quiet);
  if (error) co_return fail(error);
  const Reader reader(redisReaderCreate());
  std::array<char, 16384> buffer;
  while (done.answered < commands.size()) {
    if (const auto reply = take_reply(reader.get())) {
      if (!reply->empty()) {
        // The first word is the kind. The rest may repeat a password.
        if (done.problem.empty())
          done.problem = fmt::format("{} refuses {}: {}", address_.shown(), commands[done.answered][0],
                                     reply->substr(0, reply->find(' ')));
        ++done.refused;
      }
      ++done.answered;
      continue;
    }
    auto [failed, size] = co_await stream_->async_read_some(asio::buffer(buffer), quiet);
    if (failed) co_return fail(failed);
    redisReaderFeed(reader.get(), buffer.data(), size);
  }
  co_return done;
}

asio::awaitable<Published> Redis::open(Duration at_most) {
  const auto executor = co_await asio::this_coro::executor;
  net::Stream& stream = stream_.emplace(executor);
  if (const auto error = co_await net::connect(stream, address_, at_most); error) {
    stream_.reset();
    co_return Published{0, 0, problem_text(error, address_), true};
  }
  std::vector<Command> commands;
  if (!address_.user.empty()) commands.push_back({"AUTH", address_.user, address_.password});
  else if (!address_.password.empty()) commands.push_back({"AUTH", address_.password});
  commands.push_back({"SELECT", std::to_string(address_.database)});
  Published opened = co_await send(commands, at_most);
  opened.broken = !opened.problem.empty();
  if (opened.broken) opened.answered = opened.refused = 0;  // nothing was published
  co_return opened;
}

asio::awaitable<Published> Redis::publish(std::vector<std::pair<std::string, std::string>> messages, Duration at_most) {
  std::vector<Command> commands;
  for (auto& [channel, text] : messages) commands.push_back({"PUBLISH", channel, std::move(text)});
  const bool kept = stream_.has_value();
  Published done;
  if (!kept) done = co_await open(at_most);
  if (!done.broken) done = co_await send(commands, at_most);
  if (kept && done.broken && done.answered == 0) {  // the server has closed a connection that was idle for long
    stream_.reset();
    done = co_await open(at_most);
    if (!done.broken) done = co_await send(commands, at_most);
  }
  if (done.broken) stream_.reset();
  co_return done;
}

}  // namespace sublet::events
