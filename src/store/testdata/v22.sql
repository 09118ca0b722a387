-- A store as version 22 wrote it. Never changed: a newer program must be able to read it.
PRAGMA application_id = 1396853844;
PRAGMA user_version = 22;
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
  id                 INTEGER NOT NULL PRIMARY KEY,
  generation         INTEGER NOT NULL,
  state              TEXT    NOT NULL,
  end_reason         TEXT    NOT NULL,
  uid                INTEGER NOT NULL,
  user               TEXT    NOT NULL,
  tenant             TEXT    NOT NULL,
  consumer           TEXT    NOT NULL,
  tag                TEXT    NOT NULL,
  command            TEXT    NOT NULL,
  tier               TEXT    NOT NULL,
  priority           INTEGER NOT NULL,
  pausable           TEXT    NOT NULL,
  vram_bytes         INTEGER NOT NULL,
  wanted_device      TEXT    NOT NULL,
  ttl_ns             INTEGER,
  owner_kind         TEXT    NOT NULL,
  owner_pid          INTEGER NOT NULL,
  owner_start_ticks  INTEGER NOT NULL,
  keeper_pid         INTEGER NOT NULL,
  keeper_start_ticks INTEGER NOT NULL,
  exit_record        TEXT    NOT NULL,
  token              TEXT    NOT NULL,
  devices             TEXT    NOT NULL,
  had_process        INTEGER NOT NULL,
  lapsed_offers      INTEGER NOT NULL,
  exit_status        INTEGER,
  stop_requested     INTEGER NOT NULL,
  created_at         INTEGER NOT NULL,
  queued_at          INTEGER NOT NULL,
  granted_at         INTEGER,
  offer_ends_at      INTEGER,
  expires_at         INTEGER,
  unheld_since       INTEGER,
  stop_at            INTEGER,
  ended_at           INTEGER,
  peak_used_bytes    INTEGER NOT NULL,
  run_ns             INTEGER,           -- from grant to end, if it came to its own good end
  settled            INTEGER NOT NULL   -- 1: ended and measured gone; only history from then on
, booked TEXT NOT NULL DEFAULT '', device_count INTEGER NOT NULL DEFAULT 1, asked_vram_bytes INTEGER NOT NULL DEFAULT 0, min_vram_bytes INTEGER NOT NULL DEFAULT 0, resize_bytes INTEGER, resize_at INTEGER, owner_inode INTEGER NOT NULL DEFAULT 0, parking_method TEXT NOT NULL DEFAULT '', parking_since INTEGER NOT NULL DEFAULT 0, parking_reason TEXT NOT NULL DEFAULT '', parking_bytes INTEGER NOT NULL DEFAULT 0, parking_settled INTEGER NOT NULL DEFAULT 0, residue_bytes INTEGER NOT NULL DEFAULT 0, parking_returns INTEGER NOT NULL DEFAULT 0, parking_then_stop INTEGER NOT NULL DEFAULT 0, parking_told INTEGER NOT NULL DEFAULT 0, cooperation_way TEXT NOT NULL DEFAULT '', cooperation_residue_bytes INTEGER NOT NULL DEFAULT 0, cooperation_pid INTEGER NOT NULL DEFAULT 0, cooperation_start_ticks INTEGER NOT NULL DEFAULT 0, cooperation_address TEXT NOT NULL DEFAULT '', pause_signal INTEGER NOT NULL DEFAULT 0, resume_signal INTEGER NOT NULL DEFAULT 0, resumed_at INTEGER, ordered_by INTEGER, ordered_anybodys INTEGER NOT NULL DEFAULT 0, parking_touched TEXT NOT NULL DEFAULT '?', parking_yielded TEXT NOT NULL DEFAULT '', before_top_method TEXT NOT NULL DEFAULT '', before_top_bytes INTEGER NOT NULL DEFAULT 0, before_top_settled INTEGER NOT NULL DEFAULT 0, ordered_at INTEGER, unfit TEXT NOT NULL DEFAULT '', unfit_why TEXT NOT NULL DEFAULT '', parked_for_ns INTEGER NOT NULL DEFAULT 0, parked_at INTEGER, nameless INTEGER NOT NULL DEFAULT 0, sized_mean_bytes INTEGER, sized_until INTEGER, sized_parked_ns INTEGER, parking_deserted_since INTEGER, ceiling_bytes INTEGER NOT NULL DEFAULT 0, soft_limit_bytes INTEGER NOT NULL DEFAULT 0, kept_until INTEGER) STRICT;
INSERT INTO "leases" VALUES(1,3,'paused','none',1000,'ada','lab','train','','python3 train.py','standard',0,'auto',6442450944,'',NULL,'process',4321,987654,4320,987650,'/run/sublet/exit/1.json','7b5fc8d64e59d84669108f07d15dcafd39c1d4aa3f96f2bddb37367c0b54e9c9','GPU-8f1c
GPU-9a2d',1,0,NULL,0,1795276800000000000,1795276800000000000,1795276801000000000,NULL,NULL,NULL,NULL,NULL,5368709120,NULL,0,'4711 987654
/sys/fs/cgroup/train
',2,6442450944,4294967296,8589934592,1795276802000000000,42001,'driver',1795276802000000000,'{"kind":"tier","preemptor":2,"args":{"preemptor":"lease-2 (ada)","tier":"interactive","asked_bytes":8589934592}}',5368709120,1,67108864,1,0,1,'signal',33554432,4325,987660,'',10,12,1795276801500000000,NULL,0,'4321 987654
4322 987655
','7516192768 4194304 0 0 0 4321 987654 4294967296 4322 987655 3221225472
1073741824 0 2147483648 1610612736 0
','cooperative',4294967296,1,NULL,'never','process 4321 uses managed memory',5000000000,1795276804000000000,0,2147483648,1795276803500000000,4000000000,1795276803700000000,7516192768,6442450944,NULL);
INSERT INTO "leases" VALUES(2,1,'queued','none',1001,'bob','lab','infer','nightly','python3 train.py','interactive',50,'auto',8589934592,'',NULL,'connection',0,0,0,0,'','2c82a3ba16a3a004cd7b75802ddcd08c4adead20515b53734b153744969930eb','',0,0,NULL,0,1795276800000000000,1795276800000000000,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,0,'',1,8589934592,0,NULL,NULL,0,'',0,'',0,0,0,0,0,0,'',0,0,0,'',0,0,NULL,1000,1,'','','',0,0,1795276801700000000,'','',0,NULL,1,NULL,NULL,NULL,NULL,0,0,NULL);
INSERT INTO "leases" VALUES(3,4,'ended','released',1000,'ada','lab','train','','python3 train.py','standard',0,'auto',6442450944,'',NULL,'process',4321,987654,4320,987650,'/run/sublet/exit/1.json','5b114755970c4dd5428ab47dc97ef93b8701cb7e36be6307c5f6b8253f596205','GPU-8f1c',1,0,0,0,1795276800000000000,1795276800000000000,1795276801000000000,NULL,NULL,NULL,NULL,1795276861000000000,5368709120,60000000000,0,'',1,6442450944,0,NULL,NULL,0,'',0,'',0,0,0,0,0,0,'',0,0,0,'',0,0,NULL,NULL,0,'','','',0,0,NULL,'','',0,NULL,0,NULL,NULL,NULL,NULL,0,0,1795276870000000000);
INSERT INTO "leases" VALUES(4,4,'ended','released',1000,'ada','lab','train','','python3 train.py','standard',0,'auto',6442450944,'',NULL,'process',4321,987654,4320,987650,'/run/sublet/exit/1.json','1a9d9035ba205a7b7902df5e67b1361cda1b5af0e397578a82329ec5974446e6','GPU-8f1c',1,0,0,0,1795276800000000000,1795276800000000000,1795276801000000000,NULL,NULL,NULL,NULL,1795276871000000000,7516192768,70000000000,1,'',1,6442450944,0,NULL,NULL,0,'',0,'',0,0,0,0,0,0,'',0,0,0,'',0,0,NULL,NULL,0,'','','',0,0,NULL,'','',0,NULL,0,NULL,NULL,NULL,NULL,0,0,1795276870000000000);
CREATE TABLE meta (
  key   TEXT NOT NULL PRIMARY KEY,   -- last_id, last_time, boot_id
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('boot_id','6f9619ff-8b86-d011-b42d-00cf4fc964ff');
INSERT INTO "meta" VALUES('last_id',9);
INSERT INTO "meta" VALUES('last_time',1795276871000000000);
INSERT INTO "meta" VALUES('last_token',4);
INSERT INTO "meta" VALUES('life','5eed0001');
CREATE TABLE "moves" (
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
CREATE TABLE "pause_records" (
  uid      INTEGER NOT NULL,
  consumer TEXT    NOT NULL,
  method   TEXT    NOT NULL,
  outcomes INTEGER NOT NULL,    -- of the last tries, the newest in the lowest bit: 1 is verified
  tries    INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (uid, consumer, method)
) STRICT, WITHOUT ROWID;
INSERT INTO "pause_records" VALUES(1000,'serve','cooperative',5,3,1795276803000000000);
CREATE TABLE programs (
  uid INTEGER NOT NULL,
  tag TEXT NOT NULL,
  data TEXT NOT NULL,  -- JSON: the manifest and the progress (src/guard/program.h)
  PRIMARY KEY (uid, tag)
) STRICT, WITHOUT ROWID;
INSERT INTO "programs" VALUES(1000,'serve','{"number":1}');
CREATE TABLE "reasons" (
  lease INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  kind  TEXT    NOT NULL,
  args  TEXT    NOT NULL,
  PRIMARY KEY (lease, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO "reasons" VALUES(1,1,1795276801000000000,'granted','{"vram_bytes":6442450944,"devices":["gpu0","gpu1"],"free_bytes":19327352832,"waited_ms":1500}');
INSERT INTO "reasons" VALUES(2,1,1795276800000000000,'queued','{"place":1,"waiting":1,"vram_bytes":8589934592,"free_bytes":6442450944,"device":"gpu0","holders":[{"what":"lease-1 (serve, ada)","bytes":6442450944}]}');
INSERT INTO "reasons" VALUES(3,1,1795276861000000000,'program_exited','{"status":0,"end":"released"}');
CREATE TABLE remembered (
  number      INTEGER NOT NULL PRIMARY KEY,
  uid         INTEGER NOT NULL,
  key         TEXT    NOT NULL,
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
  hash       TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER
) STRICT;
INSERT INTO "tokens" VALUES(3,1000,'ada','grafana','read','1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0',1795276800000000000,NULL);
CREATE INDEX leases_unsettled ON leases (id) WHERE settled = 0;
CREATE INDEX leases_by_end ON leases (ended_at) WHERE state = 'ended';
CREATE INDEX leases_by_user_and_end ON leases (uid, ended_at) WHERE state = 'ended';
CREATE INDEX leases_by_tag ON leases (tag, uid, id) WHERE tag <> '';
CREATE UNIQUE INDEX remembered_by_key ON remembered (uid, key);
CREATE INDEX moves_by_kind ON moves (uid, consumer, device, method, move, seq);
CREATE INDEX leases_by_consumer ON leases (uid, consumer, ended_at, run_ns, peak_used_bytes)
  WHERE state = 'ended' AND consumer <> '' AND nameless = 0;
COMMIT;
