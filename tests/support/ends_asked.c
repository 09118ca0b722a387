/* SPDX-License-Identifier: Apache-2.0
   A library to preload into subletd. The daemon ends by SIGKILL at a step of its next question from the interposer: the
   file named by SUBLET_TEST_ENDS_ASKED has the name of the step, and is removed then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void reach(const char *step, int connection) {
  struct sockaddr_un place = {0};
  socklen_t size = sizeof place - 1;
  const char *path = getenv("SUBLET_TEST_ENDS_ASKED");
  char wanted[32] = {0};
  if (path == NULL || connection < 0 || getsockname(connection, (struct sockaddr *)&place, &size) != 0) return;
  const char *name = strrchr(place.sun_path, '/');
  if (place.sun_family != AF_UNIX || name == NULL || strcmp(name, "/credit.sock") != 0) return;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t length = read(file, wanted, sizeof wanted - 1);
  close(file);
  if (length <= 0 || strcmp(wanted, step) != 0) return;
  unlink(path);
  kill(getpid(), SIGKILL);
}

int accept4(int listener, struct sockaddr *from, socklen_t *size, int flags) {
  int (*real)(int, struct sockaddr *, socklen_t *, int) =
      (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
  const int connection = real(listener, from, size, flags);
  reach("accepted", connection);
  return connection;
}

ssize_t recvmsg(int socket, struct msghdr *message, int flags) {
  ssize_t (*real)(int, struct msghdr *, int) = (ssize_t (*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");
  const ssize_t length = real(socket, message, flags);
  if (length > 0) reach("asked", socket);
  return length;
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
  ssize_t (*real)(int, const struct msghdr *, int) =
      (ssize_t (*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
  reach("decided", socket);
  const ssize_t length = real(socket, message, flags);
  reach("answered", socket);
  return length;
}
