-- SPDX-License-Identifier: Apache-2.0
-- Rows of capabilities without a table of their own: verdicts, approvals and policies of the enforcer.

CREATE TABLE capability_rows (
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  data TEXT NOT NULL,  -- JSON
  PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
