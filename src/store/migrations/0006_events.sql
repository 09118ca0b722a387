-- SPDX-License-Identifier: Apache-2.0
-- What readers of the event stream are told. Rows are appended and go from the front; the key "life" of the table meta
-- names the store that the numbers belong to.

CREATE TABLE events (
  number INTEGER NOT NULL PRIMARY KEY,
  type   TEXT    NOT NULL,
  lease  INTEGER NOT NULL,   -- 0: of none
  data   TEXT    NOT NULL    -- JSON
) STRICT;
