-- SPDX-License-Identifier: Apache-2.0
-- Reasons as a kind and its arguments, from which the sentence is made when it is read. The arguments are JSON: sizes end
-- in _bytes, durations in _ms. The sentences of an earlier version become notes. parking_reason holds {kind, preemptor,
-- args} likewise.

CREATE TABLE reasons_as_data (
  lease INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  kind  TEXT    NOT NULL,
  args  TEXT    NOT NULL,
  PRIMARY KEY (lease, seq)
) STRICT, WITHOUT ROWID;

INSERT INTO reasons_as_data
  SELECT lease, seq, at, 'note', json_object('code', code, 'text', text) FROM reasons;

DROP TABLE reasons;
ALTER TABLE reasons_as_data RENAME TO reasons;

UPDATE leases SET parking_reason =
  json_object('kind', 'note', 'preemptor', 0, 'args', json_object('text', parking_reason)) WHERE parking_method <> '';
