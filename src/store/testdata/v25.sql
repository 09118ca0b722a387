-- A store as version 25 wrote it. Never changed: a newer program must be able to read it.
PRAGMA application_id = 1396853844;
PRAGMA user_version = 25;
BEGIN TRANSACTION;
CREATE TABLE capability_rows (
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  data TEXT NOT NULL,  -- JSON
  PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
INSERT INTO "capability_rows" VALUES('approval','3','{"subject":"user:ada","by":"root","at_ns":1795276800000000000,"reason":"night"}');
CREATE TABLE events (
  number INTEGER NOT NULL PRIMARY KEY,
  type   TEXT    NOT NULL,
  lease  INTEGER NOT NULL,   -- 0: of none
  data   TEXT    NOT NULL    -- JSON
) STRICT;
INSERT INTO "events" VALUES(41,'daemon',0,'{"type":"daemon"}');
INSERT INTO "events" VALUES(42,'lease',1,'{"type":"lease","lease":"lease-1"}');
CREATE TABLE grants (
  uid      INTEGER NOT NULL,
  consumer TEXT    NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (uid, consumer)
) STRICT, WITHOUT ROWID;
INSERT INTO "grants" VALUES(1000,'ollama',1795276800000000000);
CREATE TABLE leases (
  id              INTEGER NOT NULL PRIMARY KEY,
  state           TEXT    NOT NULL,
  uid             INTEGER NOT NULL,
  consumer        TEXT    NOT NULL,
  nameless        INTEGER NOT NULL,  -- 1: its program has no name of its own, and no history
  tag             TEXT    NOT NULL,
  ended_at        INTEGER,
  peak_used_bytes INTEGER NOT NULL,
  document        TEXT    NOT NULL,  -- JSON
  run_ns          INTEGER,           -- from grant to end, if it ended well by itself
  settled         INTEGER NOT NULL   -- 1: ended and measured gone; only history from then on
) STRICT;
INSERT INTO "leases" VALUES(1,'paused',1000,'train',0,'',NULL,5368709120,'{"id":1,"generation":3,"state":"paused","end_reason":"none","uid":1000,"user":"ada","tenant":"lab","consumer":"train","command":"python3 train.py","tier":"standard","pausable":"auto","vram_bytes":6442450944,"min_vram_bytes":4294967296,"ceiling_bytes":7516192768,"soft_limit_bytes":6442450944,"device_count":2,"owner":{"kind":"process","process":{"pid":4321,"start_ticks":987654},"keeper":{"pid":4320,"start_ticks":987650},"exit_record":"/run/sublet/exit/1.json","inode":42001},"token":"7b5fc8d64e59d84669108f07d15dcafd39c1d4aa3f96f2bddb37367c0b54e9c9","asked_vram_bytes":6442450944,"devices":["GPU-8f1c","GPU-9a2d"],"resize":{"vram_bytes":8589934592,"queued_at":1795276802000000000},"sized":{"mean_bytes":2147483648,"until":1795276803500000000,"parked_ns":4000000000},"parking":{"method":"driver","since":1795276802000000000,"cause":{"kind":"tier","preemptor":2,"args":{"preemptor":"lease-2 (ada)","tier":"interactive","asked_bytes":8589934592}},"host_bytes":5368709120,"measured":true,"residue_bytes":67108864,"resume_requested":true,"told":true,"locked_processes":[{"pid":4321,"start_ticks":987654},{"pid":4322,"start_ticks":987655}],"held_when_paused":[{"all_bytes":7516192768,"kept_bytes":4194304,"of":[[{"pid":4321,"start_ticks":987654},4294967296],[{"pid":4322,"start_ticks":987655},3221225472]]},{"all_bytes":1073741824}],"orphaned_since":1795276803700000000},"cooperation":{"way":"signal","residue_bytes":33554432,"process":{"pid":4325,"start_ticks":987660},"pause_signal":10,"resume_signal":12},"unfit":{"kind":"never","why":"process 4321 uses managed memory"},"had_process":true,"created_at":1795276800000000000,"queued_at":1795276800000000000,"granted_at":1795276801000000000,"resumed_at":1795276801500000000,"parked_at":1795276804000000000,"peak_used_bytes":5368709120,"parked_for_ns":5000000000,"booked":[{"process":{"pid":4711,"start_ticks":987654}},{"cgroup":"/sys/fs/cgroup/train"}]}',NULL,0);
INSERT INTO "leases" VALUES(2,'queued',1001,'infer',1,'nightly',NULL,0,'{"id":2,"generation":1,"state":"queued","end_reason":"none","uid":1001,"user":"bob","tenant":"lab","consumer":"infer","nameless":true,"tag":"nightly","command":"python3 train.py","tier":"interactive","priority":50,"pausable":"auto","vram_bytes":8589934592,"device_count":1,"owner":{"kind":"connection"},"token":"2c82a3ba16a3a004cd7b75802ddcd08c4adead20515b53734b153744969930eb","asked_vram_bytes":8589934592,"preemption_request":{"uid":1000,"any_user":true,"given_at":1795276801700000000},"created_at":1795276800000000000,"queued_at":1795276800000000000,"held_back_at":1795276803900000000}',NULL,0);
INSERT INTO "leases" VALUES(3,'ended',1000,'train',0,'',1795276861000000000,5368709120,'{"id":3,"generation":4,"state":"ended","end_reason":"released","uid":1000,"user":"ada","tenant":"lab","consumer":"train","command":"python3 train.py","tier":"standard","pausable":"auto","vram_bytes":6442450944,"device_count":1,"owner":{"kind":"process","process":{"pid":4321,"start_ticks":987654},"keeper":{"pid":4320,"start_ticks":987650},"exit_record":"/run/sublet/exit/1.json"},"token":"5b114755970c4dd5428ab47dc97ef93b8701cb7e36be6307c5f6b8253f596205","asked_vram_bytes":6442450944,"devices":["GPU-8f1c"],"had_process":true,"created_at":1795276800000000000,"queued_at":1795276800000000000,"granted_at":1795276801000000000,"ended_at":1795276861000000000,"kept_until":1795276870000000000,"peak_used_bytes":5368709120,"exit_status":0}',60000000000,0);
INSERT INTO "leases" VALUES(4,'ended',1000,'train',0,'',1795276871000000000,7516192768,'{"id":4,"generation":4,"state":"ended","end_reason":"released","uid":1000,"user":"ada","tenant":"lab","consumer":"train","command":"python3 train.py","tier":"standard","pausable":"auto","vram_bytes":6442450944,"device_count":1,"owner":{"kind":"process","process":{"pid":4321,"start_ticks":987654},"keeper":{"pid":4320,"start_ticks":987650},"exit_record":"/run/sublet/exit/1.json"},"token":"1a9d9035ba205a7b7902df5e67b1361cda1b5af0e397578a82329ec5974446e6","asked_vram_bytes":6442450944,"devices":["GPU-8f1c"],"had_process":true,"created_at":1795276800000000000,"queued_at":1795276800000000000,"granted_at":1795276801000000000,"ended_at":1795276871000000000,"kept_until":1795276870000000000,"peak_used_bytes":7516192768,"exit_status":0}',70000000000,1);
CREATE TABLE meta (
  key   TEXT NOT NULL PRIMARY KEY,   -- last_id, last_time, boot_id, clock_offset, life, last_token
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('boot_id','6f9619ff-8b86-d011-b42d-00cf4fc964ff');
INSERT INTO "meta" VALUES('last_id',9);
INSERT INTO "meta" VALUES('last_time',1795276871000000000);
INSERT INTO "meta" VALUES('last_token',4);
INSERT INTO "meta" VALUES('life','5eed0001');
CREATE TABLE moves (
  seq      INTEGER PRIMARY KEY,
  uid      INTEGER NOT NULL,
  consumer TEXT NOT NULL,
  device   TEXT NOT NULL,     -- '': on several
  method   TEXT NOT NULL,
  move     TEXT NOT NULL,     -- pause, settle, resume
  bytes    INTEGER NOT NULL,
  took_ns  INTEGER NOT NULL,
  at       INTEGER NOT NULL
);
INSERT INTO "moves" VALUES(1,1000,'train','','driver','pause',6442450944,3900000000,1795276802000000000);
INSERT INTO "moves" VALUES(2,1000,'train','GPU-8f1c','driver','resume',6442450944,1600000000,1795276803000000000);
CREATE TABLE pause_records (
  uid      INTEGER NOT NULL,
  consumer TEXT    NOT NULL,
  method   TEXT    NOT NULL,
  outcomes INTEGER NOT NULL,    -- of the last tries, the newest in the lowest bit: 1 is verified
  tries    INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (uid, consumer, method)
) STRICT, WITHOUT ROWID;
INSERT INTO "pause_records" VALUES(1000,'serve','cooperative',5,3,1795276803000000000);
CREATE TABLE reasons (
  lease INTEGER NOT NULL,
  seq   INTEGER NOT NULL,   -- grows by one for each reason of a lease
  at    INTEGER NOT NULL,
  kind  TEXT    NOT NULL,
  args  TEXT    NOT NULL,   -- JSON
  PRIMARY KEY (lease, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO "reasons" VALUES(1,1,1795276801000000000,'granted','{"vram_bytes":6442450944,"devices":["gpu0","gpu1"],"free_bytes":19327352832,"waited_ms":1500}');
INSERT INTO "reasons" VALUES(2,1,1795276800000000000,'queued','{"place":1,"waiting":1,"vram_bytes":8589934592,"free_bytes":6442450944,"device":"gpu0","holders":[{"what":"lease-1 (serve, ada)","bytes":6442450944}]}');
INSERT INTO "reasons" VALUES(3,1,1795276861000000000,'program_exited','{"status":0,"end":"released"}');
CREATE TABLE remembered (
  number      INTEGER NOT NULL PRIMARY KEY,
  uid         INTEGER NOT NULL,
  key         TEXT    NOT NULL,   -- as its SHA-256, because the token in the answer is made from the key
  fingerprint TEXT    NOT NULL,
  status      INTEGER NOT NULL,
  at          INTEGER NOT NULL,
  body        TEXT    NOT NULL
) STRICT;
INSERT INTO "remembered" VALUES(1,1000,'4e65d3fbe8ad6535681b021b30785b12b6c0e3f8878859a4148b3f58b8835db0','c0ffee',201,1795276801000000000,'{"id":"lease-1","state":"active"}');
CREATE TABLE tokens (
  number     INTEGER NOT NULL PRIMARY KEY,   -- never given twice: the key "last_token" of the table meta
  uid        INTEGER NOT NULL,
  user       TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  scope      TEXT    NOT NULL,
  hash       TEXT    NOT NULL,   -- SHA-256
  created_at INTEGER NOT NULL,
  expires_at INTEGER
) STRICT;
INSERT INTO "tokens" VALUES(3,1000,'ada','grafana','read','1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0',1795276800000000000,NULL);
CREATE INDEX leases_unsettled ON leases (id) WHERE settled = 0;
CREATE INDEX leases_by_end ON leases (ended_at) WHERE state = 'ended';
CREATE INDEX leases_by_user_and_end ON leases (uid, ended_at) WHERE state = 'ended';
CREATE INDEX leases_by_tag ON leases (tag, uid, id) WHERE tag <> '';
CREATE INDEX leases_by_consumer ON leases (uid, consumer, ended_at, run_ns, peak_used_bytes)
  WHERE state = 'ended' AND consumer <> '' AND nameless = 0;
CREATE UNIQUE INDEX remembered_by_key ON remembered (uid, key);
CREATE INDEX moves_by_kind ON moves (uid, consumer, device, method, move, seq);
COMMIT;
