-- SPDX-License-Identifier: Apache-2.0
-- Secrets are kept as their SHA-256 only: the tokens of leases, and the keys under which answers are remembered, because
-- the token in such an answer is made from the key. Answers given before still hold their tokens; they are forgotten a
-- day after they were given.

UPDATE leases SET token = secret_hash(token) WHERE token <> '';
UPDATE remembered SET key = secret_hash(key);

CREATE TABLE tokens (
  number     INTEGER NOT NULL PRIMARY KEY,   -- never given twice: the key "last_token" of the table meta
  uid        INTEGER NOT NULL,
  user       TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  scope      TEXT    NOT NULL,
  hash       TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER
) STRICT;
