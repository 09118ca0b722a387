// SPDX-License-Identifier: Apache-2.0
#include "base/aside.h"

#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace sublet {

struct AsideThread::Shared {
  std::mutex mutex;
  std::condition_variable more, done;
  std::deque<std::function<void()>> queue;
  bool started = false, ends = false;
  std::int64_t began_ns = 0;  // start of the running work; 0: none runs
};

AsideThread::AsideThread() : shared_(std::make_shared<Shared>()) {}

AsideThread::~AsideThread() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ends = true;
  }
  shared_->more.notify_one();
}

// False: the system gives no thread now.
bool AsideThread::start(const std::shared_ptr<Shared>& shared) {
  // Only the event loop's thread receives signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread thread([shared] { work_loop(shared); });
    pthread_setname_np(thread.native_handle(), "aside");
    thread.detach();
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

void AsideThread::run(std::function<void()> work) {
  std::unique_lock lock(shared_->mutex);
  if (!shared_->started) shared_->started = start(shared_);
  if (!shared_->started) {
    lock.unlock();
    return work();
  }
  shared_->queue.push_back(std::move(work));
  shared_->more.notify_one();
}

void AsideThread::wait(std::int64_t patience_ns) {
  std::unique_lock lock(shared_->mutex);
  const std::int64_t until_ns = (shared_->began_ns != 0 ? shared_->began_ns : monotonic_ns()) + patience_ns;
  while (shared_->began_ns != 0 || !shared_->queue.empty()) {
    const std::int64_t left = until_ns - monotonic_ns();
    if (left <= 0) return;
    shared_->done.wait_for(lock, std::chrono::nanoseconds(left));
  }
}

void AsideThread::work_loop(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->more.wait(lock, [&] { return shared->ends || !shared->queue.empty(); });
    if (shared->ends) return;
    const std::function<void()> work = std::move(shared->queue.front());
    shared->queue.pop_front();
    shared->began_ns = monotonic_ns();
    lock.unlock();
    work();
    lock.lock();
    shared->began_ns = 0;
    shared->done.notify_all();
  }
}

}  // namespace sublet
