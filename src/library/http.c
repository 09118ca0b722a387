/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------------- JSON */

static const char* skip_space(const char* at) {
  while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') ++at;
  return at;
}

/* Returns the place behind the string that begins at `at`. */
static const char* skip_string(const char* at) {
  for (++at; *at != '\0' && *at != '"'; ++at) {
    if (*at == '\\' && at[1] != '\0') ++at;
  }
  return *at == '"' ? at + 1 : at;
}

const char* json_member(const char* json, const char* name) {
  const size_t length = strlen(name);
  int depth = 0;
  const char* at = json;
  while (*at != '\0') {
    if (*at == '"') {
      const char* end = skip_string(at);
      const char* behind = skip_space(end);
      if (depth == 1 && *behind == ':' && (size_t)(end - at) == length + 2 && strncmp(at + 1, name, length) == 0) {
        return skip_space(behind + 1);
      }
      at = end;
      continue;
    }
    if (*at == '{' || *at == '[') ++depth;
    if (*at == '}' || *at == ']') --depth;
    ++at;
  }
  return NULL;
}

void json_text(const char* value, char* into, size_t size) {
  size_t used = 0;
  if (value != NULL && *value == '"') {
    for (++value; *value != '\0' && *value != '"' && used + 1 < size; ++value) {
      char c = *value;
      if (c == '\\' && value[1] != '\0') {
        ++value;
        c = *value == 'n' ? '\n' : *value == 't' ? '\t' : *value;
      }
      into[used++] = c;
    }
  }
  into[used] = '\0';
}

void json_escape(const char* text, char* into, size_t size) {
  size_t used = 0;
  for (; *text != '\0' && used + 3 < size; ++text) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') into[used++] = '\\';
    into[used++] = c < 0x20 ? ' ' : (char)c;
  }
  into[used] = '\0';
}

/* ---------------------------------------------------------------------------------------------- requests */

const char* http_socket_of(const char* host) {
  static const char scheme[] = "unix://";
  if (host == NULL || strncmp(host, scheme, sizeof scheme - 1) != 0) return NULL;
  return host[sizeof scheme - 1] == '/' ? host + sizeof scheme - 1 : NULL;
}

static int connect_to(const char* path) {
  struct sockaddr_un address;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  if (strlen(path) >= sizeof address.sun_path) return -1;
  memcpy(address.sun_path, path, strlen(path));
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, (const struct sockaddr*)&address, sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

static int send_all(int fd, const char* text, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, text, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return 0;
    text += sent;
    size -= (size_t)sent;
  }
  return 1;
}

/* 1: `fd` is readable. */
static int readable(int fd, int wake, int timeout_ms) {
  struct pollfd fds[2] = {{fd, POLLIN, 0}, {wake, POLLIN, 0}};
  int ready;
  do {
    ready = poll(fds, wake >= 0 ? 2 : 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready > 0 && fds[0].revents != 0;
}

/* Returns the status if the body, which begins at *body, is complete; 0: more bytes are to come; -1: not HTTP. */
static int whole_reply(const char* text, const char** body) {
  const char* end = strstr(text, "\r\n\r\n");
  if (end == NULL) return 0;
  if (strncmp(text, "HTTP/1.", 7) != 0) return -1;
  const long status = strtol(text + 8, NULL, 10);
  size_t length = 0;
  for (const char* line = strstr(text, "\r\n"); line != NULL && line < end; line = strstr(line + 2, "\r\n")) {
    if (strncmp(line + 2, "Content-Length:", 15) == 0) length = (size_t)strtoul(line + 17, NULL, 10);
  }
  *body = end + 4;
  if (strlen(end + 4) < length) return 0;
  return status >= 100 && status <= 999 ? (int)status : -1;
}

static int receive(int fd, int timeout_ms, int wake, struct http_reply* reply) {
  char text[sizeof reply->body + 4096];
  size_t used = 0;
  for (;;) {
    if (!readable(fd, wake, timeout_ms) || used + 1 >= sizeof text) return 0;
    const ssize_t got = recv(fd, text + used, sizeof text - used - 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    used += (size_t)got;
    text[used] = '\0';
    const char* body = NULL;
    const int status = whole_reply(text, &body);
    if (status == 0) continue;
    if (status < 0) return 0;
    snprintf(reply->body, sizeof reply->body, "%s", body);
    return reply->status = status;
  }
}

int http_call(const char* socket, const char* method, const char* target, const char* body, int timeout_ms, int wake,
              struct http_reply* reply) {
  char request[4096];
  reply->status = 0;
  reply->body[0] = '\0';
  const char* content = body == NULL ? "" : body;
  const int size = snprintf(request, sizeof request,
                            "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                            method, target, strlen(content), content);
  if (size < 0 || (size_t)size >= sizeof request) return 0;
  const int fd = connect_to(socket);
  if (fd < 0) return 0;
  if (send_all(fd, request, (size_t)size)) (void)receive(fd, timeout_ms, wake, reply);
  close(fd);
  return reply->status;
}
