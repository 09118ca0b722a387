/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a request to the daemon over its Unix socket, on a new connection. Any thread; no state. */
#ifndef SUBLET_LIBRARY_HTTP_H
#define SUBLET_LIBRARY_HTTP_H

#include <stddef.h>
#include <stdint.h>

struct http_reply {
  int status; /* 0: there was no reply */
  char body[16384];
};

/*
 * Makes a request and returns reply->status. `socket`: the path of the daemon's socket. `body`: JSON, or NULL. Waits at
 * most `timeout_ms` for each part of the answer. Stops waiting when the descriptor `wake` (-1: none) is readable.
 */
int http_call(const char* socket, const char* method, const char* target, const char* body, int timeout_ms, int wake,
              struct http_reply* reply);

/* Returns the path in "unix:///path", or NULL for any other URL. */
const char* http_socket_of(const char* host);

/* Returns the place in `json` where the value of a member begins; NULL: there is no such member. */
const char* json_member(const char* json, const char* name);
/* Copies the string at `value`, "" if there is none. Decodes the escapes \" \\ \/ \n \t and drops others. */
void json_text(const char* value, char* into, size_t size);
/* Copies `text` as the inside of a JSON string, cut to `size`. */
void json_escape(const char* text, char* into, size_t size);

#endif
