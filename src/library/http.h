/* SPDX-License-Identifier: Apache-2.0 */
/* One request to the daemon over its Unix socket, on a connection of its own. Any thread; no state. */
#ifndef SUBLET_LIBRARY_HTTP_H
#define SUBLET_LIBRARY_HTTP_H

#include <stddef.h>
#include <stdint.h>

struct http_reply {
  int status; /* 0: there was none */
  char body[16384];
};

/*
 * `socket`: its path. `body`: JSON, or NULL. Waits `timeout_ms` at most for each part of the answer, and no longer than
 * until `wake` (a descriptor; -1: none) is readable. Returns reply->status.
 */
int http_call(const char* socket, const char* method, const char* target, const char* body, int timeout_ms, int wake,
              struct http_reply* reply);

/* The path in "unix:///path", or NULL for any other URL. */
const char* http_socket_of(const char* host);

/* The value of a member of a JSON object, at its beginning in `json`; NULL: there is none. */
const char* json_member(const char* json, const char* name);
/* The string that begins there, without its escapes beyond \" \\ \/ \n \t; "" if there is none. */
void json_text(const char* value, char* into, size_t size);
/* `text` as the inside of a JSON string; what does not fit is left out. */
void json_escape(const char* text, char* into, size_t size);

#endif
